"""Request parameters: common names for every dialect, and those that an endpoint refuses."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.values import Json

_LIMITS = ("max_tokens", "max_completion_tokens")
SEED_IGNORED = "seed_ignored"


@value_object
class ThinkingBudget:
    """How much to reason, and whether to show it; None leaves it to the model."""

    effort: Json = None
    exclude: Json = None
    max_tokens: Json = None


def parameters_of(
    request: Request, own: Mapping[str, Json], *, omit: Collection[str] = ()
) -> dict[str, Json]:
    """Return the parameters of *request*, overridden by the candidate's *own*.

    Parameters that are null or named by *omit* are left out.
    """
    given = {**request.parameters, **own}
    return {name: value for name, value in given.items() if value is not None and name not in omit}


def take_limit(parameters: dict[str, Json]) -> Json:
    """Remove and return how many tokens an answer may have."""
    limits = [parameters.pop(name) for name in _LIMITS if name in parameters]
    return limits[0] if limits else None


def take_stops(parameters: dict[str, Json]) -> Json:
    """Remove and return the texts to stop at, as a list."""
    stops = parameters.pop("stop", None)
    return [stops] if isinstance(stops, str) else stops


def take_thinking(parameters: dict[str, Json]) -> ThinkingBudget:
    """Remove and return the options of reasoning, wherever they stand."""
    given = parameters.pop("reasoning", None)
    options = dict(given) if isinstance(given, Mapping) else {}
    if "reasoning_effort" in parameters:
        options["effort"] = parameters.pop("reasoning_effort")
    options.update((k, parameters.pop(k)) for k in ("effort", "exclude") if k in parameters)
    return ThinkingBudget(
        effort=options.get("effort"),
        exclude=options.get("exclude"),
        max_tokens=options.get("max_tokens"),
    )


def take_tools(request: Request, parameters: dict[str, Json]) -> tuple[Tool, ...]:
    """Return the tools of *request*, and remove and return those given as OpenAI's chat API has them.

    Tools in any other form are the API's own, and stay where they are.
    """
    given = parameters.get("tools")
    functions = [_function(entry) for entry in given] if isinstance(given, list) else []
    if not functions or not all(functions):
        return request.tools
    parameters.pop("tools")
    return (*request.tools, *(_tool(function) for function in functions))


def _function(entry: Json) -> Mapping[str, Json]:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
    return function if named and isinstance(function, Mapping) else {}


def _tool(function: Mapping[str, Json]) -> Tool:
    schema = function.get("parameters")
    return Tool(
        name=str(function["name"]),
        description=str(function.get("description") or ""),
        parameters=schema if isinstance(schema, Mapping) else {},
    )


def take_seed(parameters: dict[str, Json]) -> tuple[str, ...]:
    """Remove the seed for an API that has none, and return the flag that says so."""
    return (SEED_IGNORED,) if parameters.pop("seed", None) is not None else ()


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


@value_object
class ParameterChange:
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
    """The parameters that one model's endpoint refused; later requests are sent without them."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._known: dict[Path, ParameterChange] = {}
        self.notes: list[str] = []

    async def send(
        self, payload: Payload, send: Callable[[Payload], Awaitable[Completion]]
    ) -> Completion:
        """Return the answer to *payload*, sent again without each parameter that was refused."""
        flags: list[str] = []
        for known in self._known.values():
            payload = _changed(payload, known, flags) or payload
        new: list[tuple[ParameterChange, str]] = []
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
                if new:
                    self._learn(new)
                return (
                    replace(completion, flags=(*completion.flags, *flags)) if flags else completion
                )

    def _learn(self, changes: list[tuple[ParameterChange, str]]) -> None:
        """Remember *changes* that led to an answer, and note each once."""
        for change, why in changes:
            if change.path not in self._known:
                self._known[change.path] = change
                self.notes.append(f"{self._model} is asked {change}: it refused that ({why})")


def _changed(payload: Payload, change: ParameterChange, flags: list[str]) -> Payload | None:
    changed = change.applied(payload)
    if changed is not None and change.flag:
        flags.append(change.flag)
    return changed


def change_for(error: Mapping[str, Json], payload: Mapping[str, Json]) -> ParameterChange | None:
    """Return what to change in *payload* after an error; None where no parameter is refused."""
    message, named = _text(error.get("message")), _text(error.get("param"))
    if error.get("code") not in _CODES and not _REFUSAL.search(message):
        return None
    if named in _RENAMED and f"'{_RENAMED[named]}'" in message and named in payload:
        return ParameterChange(path=(named,), name=_RENAMED[named])
    paths = [path for path in _paths(payload) if _plain(path[-1]) not in _KEPT]
    if named:
        matching = [p for p in paths if _plain("".join(p)).endswith(_plain(named))]
        return ParameterChange(path=matching[0]) if matching else None
    places = [(place, path) for path in paths if (place := _mentioned(path[-1], message)) >= 0]
    return ParameterChange(path=min(places)[1]) if places else None


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
