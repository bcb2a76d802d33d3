"""Whether candidates ran under the same conditions: what differs besides what is compared on purpose.

A candidate is a model, an agent and a prompt. These are what is compared, and may differ:

    model, endpoint, agent, prompt, the wording of tasks    a note
    sampling, reasoning effort, seed, time, tools           blocks a verdict where model, agent or prompt
                                                            differ too; else it is what is compared: a note
    limits, judge and other roles                           block a verdict
    tests: target, scorers, tools, settings of a task       the task is not the same one, and left out

What blocks a verdict is named, and the figures are shown; whoever knows better can insist.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.plan import Plan
from bakeoff.core.values import Json
from bakeoff.stats.paired import Pair, undecided

_SETTINGS = {  # what people set for some models and forget for others, by all the names it has
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "top_k": ("top_k",),
    "min_p": ("min_p",),
    "the limit of tokens": (
        "max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict",
    ),
    "the reasoning effort": ("reasoning_effort", "reasoning", "thinking", "think", "thinking_budget"),
    "the seed": ("seed",),
    "the frequency penalty": ("frequency_penalty", "repeat_penalty", "repetition_penalty"),
    "the presence penalty": ("presence_penalty",),
    "the stop sequences": ("stop", "stop_sequences"),
    "the tools": ("tools",),
}  # fmt: skip
_TIME = "the time limit"
_MOST_NAMES_PER_VALUE = 3
_LONGEST_VALUE = 60
_UNSET = "not set"


def unequal_settings(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each setting that differs between candidates of *plan*."""
    asked = [c for c in plan.candidates if not c.scripted]
    if len(asked) < 2:
        return
    settings = candidate_settings(plan)
    for setting in (*_SETTINGS, _TIME):
        given = _SettingValues()
        for candidate in asked:
            given.add(candidate, settings[candidate.id][setting])
        if given.unequal:
            values = ", ".join(
                f"{value} ({_few(names)})" for value, names in given.by_value.items()
            )
            yield (
                f"not run under the same conditions: {setting} is {values}; a difference may come "
                "from that, so there is no verdict on them unless it is forced (bakeoff summarize --force)"
            )


def candidate_settings(plan: Plan) -> dict[str, dict[str, str]]:
    """Return by candidate every setting as it was in *plan*: its own, else what the tasks set."""
    of_tasks: dict[str, set[str]] = {setting: set() for setting in _SETTINGS}
    for task in plan.tasks:
        for setting, names in _SETTINGS.items():
            value = _first(task.parameters, names) if task.parameters else None
            of_tasks[setting].add(_as_text(value))
    return {
        candidate.id: {
            **{
                setting: _own(candidate.model.parameters, names, of_tasks[setting])
                for setting, names in _SETTINGS.items()
            },
            _TIME: _UNSET if candidate.agent.time_s is None else f"{candidate.agent.time_s:g} s",
        }
        for candidate in plan.candidates
    }


def _own(parameters: Mapping[str, Json], names: Iterable[str], of_tasks: Iterable[str]) -> str:
    own = _first(parameters, names)
    return " or ".join(sorted(of_tasks)) if own is None else _as_text(own)


@dataclass(slots=True)
class _SettingValues:
    """The values of one setting by candidate."""

    by_value: dict[str, list[str]] = field(default_factory=dict)
    by_kind: dict[tuple[str | None, ...], set[str]] = field(default_factory=dict)

    def add(self, candidate: Candidate, value: str) -> None:
        self.by_value.setdefault(value, []).append(candidate.id)
        model = candidate.model
        kind = model.full_name, model.base_url, candidate.agent.name, candidate.agent.version
        self.by_kind.setdefault(kind, set()).add(value)

    @property
    def unequal(self) -> bool:
        return len({frozenset(texts) for texts in self.by_kind.values()}) > 1


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES_PER_VALUE
    return ", ".join(names[:_MOST_NAMES_PER_VALUE]) + (f" and {more} more" if more > 0 else "")


def _first(parameters: Mapping[str, Json], names: Iterable[str]) -> Json:
    return next((parameters[name] for name in names if parameters.get(name) is not None), None)


def _as_text(value: Json) -> str:
    if value is None:
        return _UNSET
    text = f"{value:g}" if isinstance(value, int | float) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


# --- two candidates -------------------------------------------------------------------------------


@value_object
class Asked:
    """How one candidate was asked: who it is, its settings, and the conditions of its run."""

    candidate: Candidate
    settings: Mapping[str, str]
    conditions: Conditions


def asked_in(plan: Plan) -> dict[str, Asked]:
    """Return by candidate how it was asked in *plan*."""
    settings = candidate_settings(plan)
    return {
        c.id: Asked(candidate=c, settings=settings[c.id], conditions=plan.conditions)
        for c in plan.candidates
    }


def fairness_check(plan: Plan) -> "FairnessCheck":
    """Return the check of whether two candidates of *plan* ran under the same conditions."""
    asked: dict[str, Asked] = {}

    def check(first: str, second: str) -> tuple[str, ...]:
        if not asked:  # it reads all tasks: not where nothing is compared
            asked.update(asked_in(plan))
        return unequal(asked[first], asked[second])

    return check


def unequal(first: Asked, second: Asked) -> tuple[str, ...]:
    """Return what was not the same for the two and may have made the difference instead of them."""
    if first.candidate.scripted or second.candidate.scripted:
        return ()
    found = []
    if not _same_solver(first.candidate, second.candidate):
        found += [
            f"{setting} is {first.settings[setting]} and {second.settings[setting]}"
            for setting in first.settings
            if first.settings[setting] != second.settings[setting]
        ]
    return (*found, *conditions_apart(first.conditions, second.conditions))


def _same_solver(first: Candidate, second: Candidate) -> bool:
    """Whether the two are one model, agent and prompt, however it was asked."""

    def solver(candidate: Candidate) -> list[object]:
        identity = candidate.identity()
        model = candidate.model.identity()
        return [model["provider"], model["name"], candidate.agent.name, candidate.agent.version,
                candidate.agent.identity()["settings"], identity.get("prompt")]  # fmt: skip

    return solver(first) == solver(second)


def conditions_apart(first: Conditions, second: Conditions) -> Iterator[str]:
    """Yield which limits and roles are not the same."""
    limits, others = first.limits.identity(), second.limits.identity()
    for name in sorted({*limits, *others}):
        if limits.get(name) != others.get(name):
            values = _as_text(limits.get(name)), _as_text(others.get(name))
            yield f"limits.{name} is {values[0]} and {values[1]}"
    for role in sorted({*first.roles, *second.roles}):
        played = [c.roles.get(role) for c in (first, second)]
        # the same model behind another address is the same judge
        identities = [None if s is None else {**s.identity(), "base_url": None} for s in played]
        if identities[0] != identities[1]:
            names = ["nobody" if spec is None else spec.full_name for spec in played]
            what = " with other settings" if names[0] == names[1] else ""
            yield f"the {role} is {names[0]} and {names[1]}{what}"


def not_alike(pair: Pair, unequal: Sequence[str]) -> Pair:
    """Return *pair* without a verdict, because of what was *unequal* for the two."""
    why = f"different conditions: {', '.join(unequal)}"
    return undecided(replace(pair, better=None, withheld=False, equivalent=None), why)


FairnessCheck = Callable[[str, str], Sequence[str]]
"""The conditions that differ between two candidates, by their names; empty where they are comparable."""
