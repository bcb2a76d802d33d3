"""A run kept in memory: for tests, notebooks and throw-away work."""

from collections.abc import Iterator, Sequence

from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, TrialRecord, TrialRow


class MemoryStore:
    """Keeps one run while this object lives; writer and ledger in one."""

    def __init__(self) -> None:
        self._plan = Plan(blocks=())
        self._attempts: dict[str, list[TrialRecord]] = {}
        self._verdicts: dict[str, TrialRecord] = {}

    def freeze(self, plan: Plan) -> None:
        """Make *plan* the plan of this run; what is already recorded of it stays."""
        self._plan = plan

    def next_attempts(self, trials: Sequence[Trial]) -> Sequence[int | None]:
        """Return for each trial the number of its next attempt, None where it is finished."""
        return [self._next_attempt(trial) for trial in trials]

    def _next_attempt(self, trial: Trial) -> int | None:
        known = self._attempts.get(trial.id)
        if not known:
            return 1
        last = known[-1].attempt
        return None if last.status.final else last.number + 1

    async def append(self, trial: Trial, attempt: Attempt) -> None:
        """Keep *attempt*."""
        known = self._attempts.setdefault(trial.id, [])
        if any(r.attempt.number == attempt.number for r in known):
            raise UsageError(f"attempt {attempt.number} of {trial.name!r} is already recorded")
        known.append(TrialRecord.of(trial, attempt))

    def rescore(self, trial: Trial, attempt: Attempt) -> None:
        """Put the new verdict on the attempt that counts aside; `adopt` makes it the verdict."""
        self._verdicts[trial.id] = TrialRecord.of(trial, attempt)

    def adopt(self, plan: Plan) -> None:
        """Make *plan* and every verdict put aside what counts."""
        today = {trial.name: trial for trial in plan}
        for old_id, record in self._verdicts.items():
            known = self._attempts.pop(old_id)
            self._attempts[today[record.name].id] = [*known[:-1], record]
        self._plan, self._verdicts = plan, {}

    async def close(self) -> None:
        """Do nothing: what is in memory stays as long as this object."""

    def planned(self) -> Plan:
        """Return the plan of the run, whole."""
        return self._plan

    def records(self) -> Iterator[TrialRecord]:
        """Yield each recorded trial of the plan with the attempt that counts."""
        for trial in self._plan:
            if known := self._attempts.get(trial.id):
                yield known[-1]

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body."""
        return map(_row, self.records())

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts of the trials called *name*: in full, or only by task id."""
        planned = (self._attempts.get(trial.id, ()) for trial in self._plan)
        everything = (record for known in planned for record in known)
        return [r for r in everything if name in {r.name, r.task_id, r.name.rpartition("#")[0]}]

    def billed(self) -> Bill:
        """Return what the run was billed in all: every attempt, with its roles."""
        made = (record.attempt.bill for known in self._attempts.values() for record in known)
        return sum(made, NO_BILL)


def _row(record: TrialRecord) -> TrialRow:
    attempt = record.attempt
    fault, spent = attempt.fault, attempt.spent
    return TrialRow(
        task_id=record.task_id,
        category=record.category,
        candidate_id=record.candidate_id,
        rollout=record.rollout,
        status=attempt.status.value,
        score=attempt.score,
        passed=attempt.passed,
        fault_boundary=fault.boundary if fault else None,
        fault_transient=fault.transient if fault else None,
        attempts=attempt.number,
        elapsed_s=attempt.elapsed_s,
        model_s=spent.model_s,
        first_token_s=spent.first_token_s,
        requests=spent.requests,
        input_tokens=spent.usage.input_tokens,
        output_tokens=spent.usage.output_tokens,
        cost_usd=spent.usage.cost_usd,
        load_s=spent.load_s,
        flags=",".join(spent.flags) or None,
    )
