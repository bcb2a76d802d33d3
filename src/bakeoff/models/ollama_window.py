"""How much a model of Ollama reads at once, and whether it was sent more than that.

Ollama cuts what does not fit and says nothing: whole turns from the front while there are any,
then the middle of the one that is left. Two things give it away. A prompt of exactly as many
tokens as the window holds has filled it; and a prompt of fewer tokens than the messages had words
has lost some of them. Words are a sound lower bound because no tokenizer in use joins two words
in one token; they say little about text without spaces, where only the full window is left.

What is counted depends on the version: before 0.2, and again in 0.30, a prompt read from the
cache was left out of `prompt_eval_count`. There only the window can be judged by.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from bakeoff.core.errors import ProviderError
from bakeoff.core.task import Message
from bakeoff.models.look import look, open_session

_PATIENCE_S = 5.0  # the server is at work when it is asked
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_WORD = re.compile(r"\S*\w\S*")
_SMALLEST = 256  # nobody runs a model with less
_ASSUMED = (((0, 6, 7), 2048), ((0, 15, 5), 4096))  # later ones choose by memory, and say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is known of a model's window; `counts_cached` says what a token count includes."""

    tokens: int | None = None
    counts_cached: bool = True

    def lost(self, *, least: int, read: int | None) -> bool:
        """Whether a prompt of at least *least* tokens was cut when *read* were counted."""
        tokens = self.tokens
        if tokens is not None and read is not None and read > tokens:
            tokens = None  # there is more room than we were told
        if tokens is not None and (read == tokens or least > tokens):
            return True
        return self.counts_cached and read is not None and least > read


def least_tokens(messages: Sequence[Message]) -> int:
    """Return how many tokens *messages* have at the very least.

    What the assistant said does not count: templates leave out some of it on purpose.
    """
    return sum(
        sum(1 for _ in _WORD.finditer(message.content))
        for message in messages
        if message.role != "assistant"
    )


def is_plainly_whole(*, least: int, read: int | None) -> bool:
    """Whether a prompt is too small for any window to matter."""
    return read is not None and least <= read < _SMALLEST


class _Version(msgspec.Struct):
    version: str = ""


class _Shown(msgspec.Struct):
    parameters: str | None = None


class _Loaded(msgspec.Struct):
    name: str = ""
    context_length: int | None = None


class _Running(msgspec.Struct):
    models: list[_Loaded] | None = None


async def window_of(
    url: str, name: str, *, num_ctx: int | None = None, headers: Mapping[str, str] | None = None
) -> Window:
    """Return the window of a model that is loaded; whatever cannot be learned stays unknown.

    The request's own *num_ctx* decides, then what the server says it loaded, then the model's
    file, then the default of that version.
    """
    async with open_session(headers) as session:
        version = _numbers(await _version(session, url))
        counts = version is None or (version >= (0, 2, 0) and version[:2] != (0, 30))
        tokens = num_ctx or await _loaded(session, url, name) or await _in_file(session, url, name)
    return Window(tokens=tokens or _assumed(version), counts_cached=counts)


async def _version(session: aiohttp.ClientSession, url: str) -> str:
    try:
        return (await look(session, f"{url}/api/version", _Version, timeout_s=_PATIENCE_S)).version
    except ProviderError:
        return ""


async def _loaded(session: aiohttp.ClientSession, url: str, name: str) -> int | None:
    try:
        running = await look(session, f"{url}/api/ps", _Running, timeout_s=_PATIENCE_S)
    except ProviderError:
        return None
    names = {name, f"{name}:latest"}
    return next((m.context_length for m in running.models or () if m.name in names), None)


async def _in_file(session: aiohttp.ClientSession, url: str, name: str) -> int | None:
    try:
        shown = await look(
            session, f"{url}/api/show", _Shown, ask={"model": name}, timeout_s=_PATIENCE_S
        )
    except ProviderError:
        return None
    found = _NUM_CTX.search(shown.parameters or "")
    return int(found[1]) if found else None


def _numbers(version: str) -> tuple[int, int, int] | None:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _assumed(version: tuple[int, int, int] | None) -> int | None:
    if version is None:
        return None
    return next((tokens for until, tokens in _ASSUMED if version < until), None)
