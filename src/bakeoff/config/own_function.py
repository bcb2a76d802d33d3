"""The settings of a function or a class of one's own, checked against what it takes."""

import inspect
from collections.abc import Callable, Mapping, Sequence

from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


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
