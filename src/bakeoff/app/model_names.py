"""What a model's name means, where it is, and what its secrets are.

A URL is the one of the command line, else of the config, else of the provider's variable, else the
provider's own.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from bakeoff import registry
from bakeoff._lib.phrasing import did_you_mean, near
from bakeoff._lib.redact import Redactor, public_url
from bakeoff.app.known_secrets import VARIABLE, learn_model, refuse_redacted_model
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.formats.text.locate import about
from bakeoff.models.providers import PROVIDERS, Provider

OWN = "python"  # the provider of models that are user code

_DEFAULT_NAMES = {"embedded": "smollm2-135m", "scripted": "echo"}
_FAMILIES = {
    "openai": re.compile(r"(gpt|chatgpt|o[1-9])(-|$)"),
    "anthropic": re.compile(r"claude-"),
    "google": re.compile(r"gemini-"),
}
_LEAST_ALIKE = 0.88  # the same, where a name of Ollama may be meant
_MISSPELT = 0.75  # how near a name must be to another to be a slip of the finger


def resolve(
    spec: ModelSpec,
    *,
    base_url: str | None = None,
    folders: Iterable[Path] = (),
    environ: Mapping[str, str] | None = None,
) -> ModelSpec:
    """Return *spec* with its provider and its place; with a base URL, a name is sent as it stands.

    *environ* is where variables of URLs are read, by default the process's own.
    """
    if base_url:
        spec = replace(spec, base_url_from="--base-url")
    elif spec.base_url:
        spec = replace(spec, base_url_from=spec.base_url_from or "config")
    placed = _provided(spec, base_url or spec.base_url, folders)
    return _located(placed, os.environ if environ is None else environ)


def _provided(spec: ModelSpec, url: str | None, folders: Iterable[Path]) -> ModelSpec:
    if spec.provider:
        return _with_defaults(replace(spec, base_url=url))
    text = spec.name
    provider, slash, name = text.partition("/")
    if url and not (slash and provider in _OTHER_DIALECTS):
        name = text.removeprefix("openai-compatible/")
        return replace(
            spec,
            provider="openai-compatible",
            name=name,
            base_url=url,
            label=spec.label or name,
        )
    known = set(PROVIDERS)
    if provider not in known:
        known |= {*registry.names("models")}  # plug-ins are looked for on the disk
    if provider in known and (slash or provider in _DEFAULT_NAMES):
        return _with_defaults(replace(spec, provider=provider, name=name, base_url=url))
    if registry.is_own(text, folders=folders):
        return replace(spec, provider=OWN)
    with about(spec):
        address = f"`{spec.origin.address}`" if spec.origin else "--base-url"
        return _with_defaults(replace(spec, provider=_guess(text, known, address)))


_OTHER_DIALECTS = frozenset(
    name
    for name, p in PROVIDERS.items()
    if p.key_header or (p.base_url and p.adapter != "openai-compatible")
)


def _guess(text: str, known: Collection[str], address: str) -> str:
    """Return the provider of a model named without one; *address* is the option for its URL."""
    if (meant := _misspelt_model(text)) is not None:
        raise UsageError(f"model {text!r}: no model is called that; did you mean {meant!r}?")
    if trouble := _unclear(text, known):
        raise UsageError(
            f"model {text!r}: {trouble}; write it as provider/name, or say where it is with {address}"
        )
    for provider, family in _FAMILIES.items():
        if family.match(text):
            return provider
    return "ollama"


def _misspelt_model(text: str) -> str | None:
    """Return the model that *text* almost names, of those that need no provider."""
    if text in _DEFAULT_NAMES:
        return None
    return next(iter(get_close_matches(text, _DEFAULT_NAMES, n=1, cutoff=_LEAST_ALIKE)), None)


def _unclear(text: str, known: Collection[str]) -> str | None:
    """Return why the provider of *text* is unknown; None where it may be known."""
    if not text:
        return "it has no name"
    file = text.rpartition(":")[0]
    if file.endswith(".py"):
        return f"there is no file {file!r}, neither beside the file that names it nor here"
    provider, slash, _ = text.partition("/")
    if slash:
        return f"no provider is called {provider!r} ({did_you_mean(provider, known)})"
    if meant := get_close_matches(text, known, n=1, cutoff=_LEAST_ALIKE):
        which = f"which model of {meant[0]!r}, such as {meant[0]}/NAME?"
        return which if text == meant[0] else f"is the provider {meant[0]!r} meant? then {which}"
    return None


def is_bare(spec: ModelSpec, folders: Iterable[Path] = ()) -> bool:
    """Whether *spec* is a name alone, which only a guess would take for a model of Ollama."""
    name = spec.name
    return not (
        spec.provider
        or spec.base_url
        or "/" in name
        or name in _DEFAULT_NAMES
        or any(family.match(name) for family in _FAMILIES.values())
        or registry.is_own(name, folders=folders)
    )


def with_alias(
    spec: ModelSpec, models: Iterable[ModelSpec], *, key: str, folders: Iterable[Path] = ()
) -> ModelSpec:
    """Return the one of *models* that a bare name means, with what *spec* says beyond the name.

    A name that is none of them but near one is a mistake, told with its *key*.
    """
    if not is_bare(spec, folders):
        return spec
    known = {name: model for model in models for name in _aliases(model, folders)}
    if (model := known.get(spec.name)) is not None:
        return replace(
            model,
            api_key=spec.api_key or model.api_key,
            headers={**model.headers, **spec.headers},
            parameters={**model.parameters, **spec.parameters},
            settings={**model.settings, **spec.settings},
            label=spec.label or model.label,
            origin=spec.origin or model.origin,
        )
    if meant := near(spec.name, known, least=_MISSPELT):
        with about(spec):
            raise UsageError(
                f"key {key!r}: no model is called {spec.name!r}; did you mean {meant!r}? "
                f"there are: {', '.join(known)}; a model of Ollama is written ollama/{spec.name}"
            )
    return spec


def _aliases(model: ModelSpec, folders: Iterable[Path]) -> list[str]:
    """Return the names that stand for *model* and nothing else."""
    names = [model.label] if model.label else []
    return names if is_bare(model, folders) else [*names, model.name]


def how_understood(before: ModelSpec, after: ModelSpec, *, what: str = "model") -> str | None:
    """Return a line that says what a name without a provider was taken for."""
    guessed = not before.provider and not before.base_url and "/" not in before.name
    if not guessed or before.name in _DEFAULT_NAMES or after.provider in {OWN, "openai-compatible"}:
        return None
    return f"{what} {before.name!r} is taken as {after.full_name}; write that to be sure"


def _located(spec: ModelSpec, environ: Mapping[str, str]) -> ModelSpec:
    """Return *spec* with the URL that a variable names, else its provider's own, and who says so."""
    provider = PROVIDERS.get(spec.provider, Provider())
    if spec.base_url or not (provider.base_url or provider.url_variables):
        return spec
    if spec.may_read is not None:  # these name an address of the operator's
        names = (*provider.url_variables, provider.host_variable or "")
        spec = replace(spec, may_read=(*spec.may_read, *filter(None, names)))
    for variable in provider.url_variables:
        if url := environ.get(variable, "").strip():
            url = _azure(url, spec.name, environ) if spec.provider == "azure" else url
            # a URL with a secret in it is named, not kept
            kept = url if public_url(url) == url else f"${{{variable}}}"
            return replace(spec, base_url=kept, base_url_from=variable)
    if host := provider.host_variable:
        said_by = host if environ.get(host) else "default"
        return replace(spec, base_url=f"${{{host}:-{provider.base_url}}}", base_url_from=said_by)
    if provider.base_url is None:
        return spec
    return replace(spec, base_url=provider.base_url, base_url_from="default")


def _azure(endpoint: str, deployment: str, environ: Mapping[str, str]) -> str:
    """Return the URL of a deployment: of the dated API where a version is named, else of v1."""
    root = endpoint.rstrip("/")
    if "/openai" in root:
        return root
    version = environ.get("AZURE_OPENAI_API_VERSION") or environ.get("OPENAI_API_VERSION")
    if version:
        return f"{root}/openai/deployments/{deployment}?api-version={version}"
    return f"{root}/openai/v1"


def where_asked(spec: ModelSpec) -> str | None:
    """Return a line that says where a model is asked, where a variable decided that."""
    address = address_from_variable(spec)
    return f"model {spec.full_name!r} is {address}" if address else None


def address_from_variable(spec: ModelSpec) -> str | None:
    """Return at which address a model is asked, and the variable that decided it, if one did."""
    variables = PROVIDERS.get(spec.provider, Provider()).url_variables
    if spec.base_url_from not in variables:
        return None
    named = spec.base_url_from == (spec.base_url or "").strip("${}")
    shown = "a URL with a secret" if named else public_url(spec.base_url or "").partition("?")[0]
    return f"asked at {shown} ({spec.base_url_from})"


def _with_defaults(spec: ModelSpec) -> ModelSpec:
    provider = PROVIDERS.get(spec.provider, Provider())
    header = None if spec.api_key else provider.key_header
    if spec.may_read is not None and provider.key and not spec.base_url:
        # a provider's own key goes to the provider, whoever names the model
        spec = replace(spec, may_read=(*spec.may_read, provider.key))
    return replace(
        spec,
        name=spec.name or _DEFAULT_NAMES.get(spec.provider, ""),
        api_key=spec.api_key or (f"${{{provider.key}}}" if provider.key and not header else None),
        headers={header: f"${{{provider.key}}}", **spec.headers} if header else spec.headers,
        label=spec.label or (spec.name if spec.provider == "openai-compatible" else None),
    )


def with_secrets(spec: ModelSpec, environ: Mapping[str, str], redactor: Redactor) -> ModelSpec:
    """Return *spec* with every `${NAME}` read; the redactor learns each secret first."""
    refuse_redacted_model(spec)
    learn_model(spec, environ, redactor)
    return replace(
        spec,
        base_url=_read(spec.base_url, spec, environ) if spec.base_url else None,
        api_key=_read(spec.api_key, spec, environ) if spec.api_key else None,
        headers={name: _read(value, spec, environ) for name, value in spec.headers.items()},
    )


def _refuse_unless_allowed(name: str, spec: ModelSpec) -> None:
    """Raise where a suite named the model and is not allowed to read this variable."""
    if spec.may_read is None or name in spec.may_read:
        return
    raise UsageError(
        f"model {spec.full_name!r}: the suite wants the value of your environment variable {name}, "
        f"for requests to {public_url(spec.base_url or 'its endpoint')}; a suite may read none by "
        f"itself: if that is right, add --allow-env {name}, or name the model in a run file"
    )


def _read(text: str, spec: ModelSpec, environ: Mapping[str, str]) -> str:
    """Return *text* with `${NAME}` and `${NAME:-default}` replaced."""

    def value(variable: re.Match[str]) -> str:
        name, default = variable[1], variable[2]
        _refuse_unless_allowed(name, spec)
        if name in environ and environ[name].strip():
            return environ[name]
        if default is not None:
            return default
        trouble = "set, but empty; give it a value" if name in environ else "not set; export it"
        where = "unset it and write" if name in environ else "write"
        raise UsageError(
            f"model {spec.full_name!r}: the environment variable {name} is {trouble}, "
            f"or {where} {name}=... into a file .env here, or into one named with --env-file"
        )

    return VARIABLE.sub(value, text)
