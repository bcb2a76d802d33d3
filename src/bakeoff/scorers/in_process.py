"""A scorer of one's own in worker processes: it may block or die, and only its trial breaks."""

import inspect
from dataclasses import replace

from bakeoff.core.errors import ScorerError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context, Scorer
from bakeoff.core.record import Score
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.scorers.function import FunctionScorer
from bakeoff.workers.process import WorkerPool
from bakeoff.workers.wire import Broke, Grade, Graded

_MOST_OUTPUT = 20_000
_LIGHT = frozenset({"answer", "target"})


class ScorerInProcess:
    """Lets a worker process grade with the scorer that *spec* names; *scorer* is that one, here.

    In a process it has the models and roles of the kit and nothing else of it. An async one that
    grades files needs the bench, and runs here.
    """

    def __init__(self, spec: ScorerSpec, scorer: Scorer, pool: WorkerPool) -> None:
        self._spec = spec
        self._scorer = scorer
        self._pool = pool
        self._is_function = isinstance(scorer, FunctionScorer)
        self._light = isinstance(scorer, FunctionScorer) and scorer.wants <= _LIGHT

    def check(self, task: Task) -> None:
        """Let the scorer look at the task, where it wants to."""
        if (check := getattr(self._scorer, "check", None)) is not None:
            check(task)

    async def score(self, task: Task, outcome: Outcome, kit: Context) -> Score:
        """Let a process grade."""
        needs_bench = kit.bench is not None and not self._is_function
        if needs_bench and inspect.iscoroutinefunction(self._scorer.score):
            return await self._scorer.score(task, outcome, kit)
        printed: list[str] = []
        reply = await self._pool.work(self._order(task, outcome, kit), kit, hears=printed.append)
        if isinstance(reply, Graded):
            return _with_output(reply.score, "".join(printed)) if printed else reply.score
        what = f"scorer {self._spec.name!r}"
        if isinstance(reply, Broke):
            raise ScorerError(f"{what}: {reply.message}", traceback=reply.traceback)
        raise ScorerError(f"{what}: it solved instead of grading")

    def _order(self, task: Task, outcome: Outcome, kit: Context) -> Grade:
        name, settings = self._spec.name, dict(self._spec.settings)
        if self._light:
            given = {"answer": outcome.answer, "target": task.target}
            return Grade(scorer=name, settings=settings, given=given)
        return Grade(
            scorer=name,
            settings=settings,
            task=task,
            outcome=outcome,
            rollout=kit.rollout,
            roles=tuple(kit.roles),
        )


def _with_output(score: Score, output: str) -> Score:
    """Return *score* with what the scorer printed, which reports show, unless it says so itself."""
    details = {"output": output[-_MOST_OUTPUT:], **score.details}
    return replace(score, details=details)
