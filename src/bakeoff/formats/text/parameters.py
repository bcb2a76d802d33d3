"""Parameters of a request: sent as they stand, but a number in quotes is refused before it is sent."""

import inspect
from collections.abc import Callable, Mapping, Sequence

from bakeoff._lib.decode_errors import explain_decode_error
from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import dotted
from bakeoff.formats.text.locate import shown
from bakeoff.formats.text.problems import Problems

_COUNTS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed", "top_k")
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(_COUNTS, "int"),
    **dict.fromkeys(_NUMBERS, "float"),
    "stream": "bool",
}
_FITS: Mapping[str, tuple[str, ...]] = {
    "int": ("int", "null"),
    "float": ("int", "float", "null"),
    "bool": ("bool", "null"),
}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_parameters(parameters: Mapping[str, Json], *, at: SourceLocation, of: str = "") -> None:
    """Raise where a parameter that every server knows has a value of the wrong kind.

    They stand *at* a place; *of* is what they belong to, for the message.
    """
    problems = Problems()
    for name, wanted in _KINDS.items() if parameters else ():
        kind = _kind(parameters.get(name))
        if kind not in _FITS[wanted]:
            here = at.inside(name)
            words = explain_decode_error(
                f"Expected `{wanted}`, got `{kind}`", value=parameters[name]
            )
            problems.add(UsageError(f"{shown(here)}: key {dotted(here.key)!r}: {words}{of}"))
    problems.raise_any()


def _kind(value: Json) -> str:
    """Return what the decoder calls the kind of *value*."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float | str):
        return type(value).__name__
    return "object" if isinstance(value, Mapping) else "array"


def check_call(
    function: Callable[..., object],
    settings: Mapping[str, Json],
    *,
    gets: Sequence[str] = (),
    what: str,
) -> None:
    """Raise where *function* cannot be called with what it *gets* by place and *settings* by name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-ins do not say
        return
    placed = [p for p in parameters if p.kind in _PLACED][: len(gets)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(placed) < len(gets) and not takes_any:
        raise UsageError(f"{what} must take {' and '.join(f'`{name}`' for name in gets)}")
    rest = [p for p in parameters if p not in placed]
    _check_names({p.name: p for p in rest if p.kind in _NAMED}, settings, rest, what)


def _check_names(
    named: Mapping[str, inspect.Parameter],
    settings: Mapping[str, Json],
    rest: Sequence[inspect.Parameter],
    what: str,
) -> None:
    takes_all = any(p.kind is p.VAR_KEYWORD for p in rest)
    for key in settings:
        if key not in named and not takes_all:
            raise UsageError(f"{what}: unknown setting {key!r}; {did_you_mean(key, named)}")
    for name, parameter in named.items():
        if parameter.default is parameter.empty and name not in settings:
            raise UsageError(f"{what}: it needs the setting {name!r}; write it under `settings`")
