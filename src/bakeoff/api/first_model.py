"""The model that a new run file starts with: one that is installed, answers here, or has a key."""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.api.inspection import ModelLine, embedded_is_ready, models
from bakeoff.models.embedded import INSTALL
from bakeoff.models.providers import PROVIDERS

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

    `install` is what has to be typed before it can run; `billed`, whether somebody sends a bill.
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
    return FirstModel(name=EMBEDDED, why=why, install=INSTALL)


def _can_chat(model: ModelLine) -> bool:
    """Whether a local server has it, and its name is not that of a model for embeddings."""
    return model.where is not None and not any(word in model.name for word in ("embed", "bge-"))


def _size(model: ModelLine) -> float:
    return float("inf") if model.size_bytes is None else model.size_bytes
