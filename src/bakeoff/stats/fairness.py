"""Whether candidates were asked alike: a comparison is one of models only where the rest is equal.

A setting that a model or an agent is given in all its values is what is compared, not a mistake: a
sweep over temperatures is fair, and so is a sweep of every model over the same temperatures.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bakeoff.core.candidate import Candidate
from bakeoff.core.plan import Plan
from bakeoff.core.values import Json

_SETTINGS = {  # what people set for some models and forget for others, by all the names it has
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "the limit of tokens": (
        "max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict",
    ),
}  # fmt: skip
_MOST_NAMES = 3
_UNSET = "not set"


@dataclass(slots=True)
class _Given:
    """One setting, as candidates were given it."""

    by_value: dict[str, list[str]] = field(default_factory=dict)
    by_kind: dict[tuple[str | None, ...], set[str]] = field(default_factory=dict)

    def add(self, candidate: Candidate, values: Iterable[str]) -> None:
        told = " or ".join(sorted(values))
        self.by_value.setdefault(told, []).append(candidate.id)
        model = candidate.model
        kind = model.full_name, model.base_url, candidate.agent.name, candidate.agent.version
        self.by_kind.setdefault(kind, set()).add(told)

    @property
    def unequal(self) -> bool:
        return len({frozenset(told) for told in self.by_kind.values()}) > 1


def unlike(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each setting that some candidates of *plan* have and others have not."""
    asked = [c for c in plan.candidates if not c.scripted]
    for setting, names in _SETTINGS.items():
        own = [_first(one.model.parameters, names) for one in asked]
        if all(value is None for value in own):
            continue
        of_tasks = {_told(_first(task.parameters, names)) for task in plan.tasks}
        given = _Given()
        for one, value in zip(asked, own, strict=True):
            given.add(one, of_tasks if value is None else {_told(value)})
        yield from _sentence(setting, given)
    times = _Given()
    for one in asked:
        times.add(one, {_UNSET if one.agent.time_s is None else f"{one.agent.time_s:g} s"})
    yield from _sentence("the time limit", times)


def _sentence(setting: str, given: _Given) -> Iterator[str]:
    if given.unequal:
        told = ", ".join(f"{value} ({_few(who)})" for value, who in given.by_value.items())
        yield f"not asked alike: {setting} is {told}; a difference may come from that"


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _first(parameters: Mapping[str, Json], names: Iterable[str]) -> Json:
    return next((parameters[name] for name in names if parameters.get(name) is not None), None)


def _told(value: Json) -> str:
    if value is None:
        return _UNSET
    return f"{value:g}" if isinstance(value, int | float) else str(value)
