"""Parameters that an endpoint refuses: left out or renamed, tried once more, and said.

Reasoning models answer `temperature: 0` with HTTP 400, for example. Only what the refusal names is
changed, and only what may be missing: never the messages, the tools, the texts to stop at or the
length of the answer, without which it would be another answer.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion
from bakeoff.core.values import Json

WITHOUT = "without_"
"""How the flag of an answer begins that was asked without a parameter."""

Payload = dict[str, Json]
Path = tuple[str, ...]

_CODES = frozenset({"unsupported_value", "unsupported_parameter", "unknown_parameter"})
_REFUSAL = re.compile(
    r"not support|unsupported|not (?:be )?(?:allowed|permitted|enabled|available)|deprecated"
    r"|may only be set|only the default|cannot (?:both )?be (?:specified|set|used)"
    r"|cannot find field|unknown (?:name|parameter|field)|unrecognized",
    re.IGNORECASE,
)
_RENAMED = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
_KEPT = frozenset(
    [
        "candidatecount",
        "contents",
        "generationconfig",
        "input",
        "maxcompletiontokens",
        "maxoutputtokens",
        "maxtokens",
        "messages",
        "model",
        "n",
        "numpredict",
        "options",
        "prompt",
        "stop",
        "stopsequences",
        "stream",
        "system",
        "systeminstruction",
        "toolchoice",
        "toolconfig",
        "tools",
    ]
)
_CONTAINERS = frozenset(
    ["generationConfig", "thinkingConfig", "options", "output_config", "reasoning", "text"]
)
_PROSE = {"presencepenalty": r"penalty", "frequencypenalty": r"penalty"}  # Gemini names neither
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


class BadRequest(ProviderError):  # noqa: N818 -- the name of the HTTP status
    """HTTP 400 or 422; `error` is what the endpoint says about it."""

    def __init__(self, message: str, error: Mapping[str, Json], *, status: int = 400) -> None:
        super().__init__(message, billable=False, status=status)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A parameter that is left out, or goes under another name."""

    path: Path
    name: str | None = None

    @property
    def flag(self) -> str | None:
        """The flag of an answer that was asked without it; another name changes nothing."""
        return None if self.name else WITHOUT + re.sub(r"\W", "_", self.path[-1])

    def __str__(self) -> str:
        return f"as `{self.name}`" if self.name else f"without `{'.'.join(self.path)}`"

    def applied(self, payload: Mapping[str, Json]) -> Payload | None:
        """Return *payload* with the change; None where there is nothing to change."""
        key, *rest = self.path
        if key not in payload:
            return None
        changed = dict(payload)
        value = changed.pop(key)
        if rest:
            inner = (
                replace(self, path=tuple(rest)).applied(value)
                if isinstance(value, Mapping)
                else None
            )
            if inner is None:
                return None
            if inner:
                changed[key] = inner
        elif self.name:
            changed.setdefault(self.name, value)
        return changed


class RefusedParameters:
    """What the endpoint of one model refused so far; later requests go out without it."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._known: dict[Path, Change] = {}
        self.notes: list[str] = []

    async def ask(
        self, payload: Payload, send: Callable[[Payload], Awaitable[Completion]]
    ) -> Completion:
        """Return the answer to *payload*, asked again without what was refused, once for each."""
        flags: list[str] = []
        for known in self._known.values():
            payload = _changed(payload, known, flags) or payload
        new: list[tuple[Change, str]] = []
        while True:
            try:
                completion = await send(payload)
            except BadRequest as error:
                change = change_for(error.error, payload)
                changed = None if change is None else _changed(payload, change, flags)
                if change is None or changed is None:
                    raise
                payload = changed
                new.append((change, one_line(str(error), width=200)))
            else:
                self._learn(new)
                return (
                    replace(completion, flags=(*completion.flags, *flags)) if flags else completion
                )

    def _learn(self, changes: list[tuple[Change, str]]) -> None:
        """Remember *changes* that led to an answer, and say each once."""
        for change, why in changes:
            if change.path not in self._known:
                self._known[change.path] = change
                self.notes.append(f"{self._model} is asked {change}: it refused that ({why})")


def _changed(payload: Payload, change: Change, flags: list[str]) -> Payload | None:
    changed = change.applied(payload)
    if changed is not None and change.flag:
        flags.append(change.flag)
    return changed


def change_for(error: Mapping[str, Json], payload: Mapping[str, Json]) -> Change | None:
    """Return what to change in *payload* after an error; None where no parameter is refused."""
    message, named = _text(error.get("message")), _text(error.get("param"))
    if error.get("code") not in _CODES and not _REFUSAL.search(message):
        return None
    if named in _RENAMED and f"'{_RENAMED[named]}'" in message and named in payload:
        return Change(path=(named,), name=_RENAMED[named])
    paths = [path for path in _paths(payload) if _plain(path[-1]) not in _KEPT]
    if named:
        matching = [p for p in paths if _plain("".join(p)).endswith(_plain(named))]
        return Change(path=matching[0]) if matching else None
    places = [(place, path) for path in paths if (place := _mentioned(path[-1], message)) >= 0]
    return Change(path=min(places)[1]) if places else None


def _paths(payload: Mapping[str, Json], above: Path = ()) -> Iterator[Path]:
    for key, value in payload.items():
        yield (*above, key)
        if key in _CONTAINERS and isinstance(value, Mapping):
            yield from _paths(value, (*above, key))


def _mentioned(name: str, message: str) -> int:
    """Return where *message* names a parameter, in whatever spelling; -1 where it does not."""
    spelling = r"[_\s-]?".join(map(re.escape, _WORD.findall(name)))
    prose = _PROSE.get(_plain(name))
    pattern = rf"(?<![A-Za-z0-9])(?:{spelling}{f'|{prose}' if prose else ''})(?![A-Za-z0-9])"
    match = re.search(pattern, message, re.IGNORECASE)
    return match.start() if match and spelling else -1


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", name).lower()


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
