"""What a plan may come to, before anything is asked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bakeoff._lib.value_object import value_object
from bakeoff.core.budget import Tariff, most_input
from bakeoff.core.candidate import ModelSpec, PromptSpec
from bakeoff.core.outcome import Request, Usage
from bakeoff.core.plan import Block, Plan
from bakeoff.core.task import Message, Task

_BYTES_PER_TOKEN = 4
_JUDGE = "judge"
_BARE_MODEL = "direct"
_RUBRIC = 300  # tokens that a judge is told beside the task and the answer


@value_object
class Forecast:
    """One request per trial, and one to the judge for each of its scorers; no retries.

    Input is estimated, output the longest that answers may be. None is unknown, and `unknown` says
    why. Where nobody sends a bill (`billed`), there is no cost either. Where trials take more than
    that one request, `more` says which: then it is no estimate of the whole, only of its beginning.
    """

    input_tokens: int
    output_tokens: int | None
    cost_usd: float | None
    billed: bool = True
    unknown: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sum:
    read: int = 0
    written: int | None = 0
    cost_usd: float | None = None
    cost_known: bool = True
    billed: bool = False
    unknown: dict[str, None] = field(default_factory=dict)

    def add(self, name: str, tariff: Tariff, read: int, written: int | None, times: int) -> None:
        self.read += read * times
        if written is None:
            self.unknown[f"{name} has no max_tokens"] = None
            self.written = None
        elif self.written is not None:
            self.written += written * times
        if not tariff.billed:
            return
        self.billed = True
        usage = Usage(input_tokens=read, output_tokens=written, cached_tokens=0)
        cost = tariff.price.cost(usage) if tariff.price is not None else None
        if tariff.price is None:
            self.unknown[f"{name} has no known price"] = None
        if cost is None:
            self.cost_known = False
        else:
            self.cost_usd = (self.cost_usd or 0.0) + cost * times


AskedTask = Callable[[PromptSpec | None, Task], Task]
"""Returns a task as a prompt asks it."""


def forecast(
    plan: Plan, tariff_of: Callable[[ModelSpec], Tariff], asked: AskedTask = lambda _, task: task
) -> Forecast:
    """Return what *plan* may come to where each trial takes one request, *asked* by its prompt."""
    total = _Sum()
    for block in plan.blocks:
        _add(total, block, plan, tariff_of, asked)
    others = sorted({*plan.conditions.roles} - {_JUDGE})
    notes = [*total.unknown, *(f"how often {name} is asked" for name in others)]
    return Forecast(
        input_tokens=total.read,
        output_tokens=total.written,
        cost_usd=total.cost_usd if total.cost_known else None,
        billed=total.billed,
        unknown=tuple(notes),
        more=tuple(_more(plan)),
    )


def _more(plan: Plan) -> Iterator[str]:
    """Yield why trials take more than one request each."""
    dialogues = [task.dialogue for task in plan.tasks if task.dialogue is not None]
    if dialogues:
        yield f"a dialogue takes up to {max(d.max_turns for d in dialogues)} turns"
    agents = dict.fromkeys(c.agent.name for c in plan.candidates if c.agent.needs_model)
    for name in agents:
        if name != _BARE_MODEL:
            yield f"agent {name!r} asks as often as it needs"


def _add(
    total: _Sum,
    block: Block,
    plan: Plan,
    tariff_of: Callable[[ModelSpec], Tariff],
    asked: AskedTask,
) -> None:
    judge = plan.conditions.roles.get(_JUDGE)
    for candidate in block.candidates:
        tariff = tariff_of(candidate.model)
        name = candidate.id if candidate.prompt is None else candidate.solver  # for all prompts
        for task in block.tasks:
            read = _about(asked(candidate.prompt, task))
            written = tariff.most_output(task.parameters)
            total.add(name, tariff, read, written, block.rollouts)
            verdicts = sum(1 for scorer in task.scorers if scorer.asks_judge)
            if judge is not None and verdicts:
                its = tariff_of(judge)
                seen = read + (written or 0) + _RUBRIC
                times = block.rollouts * verdicts
                total.add(f"role {_JUDGE!r}", its, seen, its.most_output({}), times)


def _about(task: Task) -> int:
    """Return about how many tokens the first request of a trial reads."""
    messages = task.messages
    if task.dialogue is not None and task.dialogue.opening is not None:
        messages = (*messages, Message(role="user", content=task.dialogue.opening))
    return most_input(Request(messages=messages, prompt=task.prompt)) // _BYTES_PER_TOKEN
