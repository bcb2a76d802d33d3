"""An attempt as a row of the ledger, and a row as an attempt again."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from bakeoff._lib.value_object import value_object
from bakeoff.core.budget import Bill
from bakeoff.core.outcome import Outcome, Spent, Usage
from bakeoff.core.record import Attempt, Fault, Score
from bakeoff.stores.schema import ATTEMPT, CODES, STATUSES, Row, real, row_crc


@value_object
class _Explanation:
    """What the columns do not say of a fault."""

    message: str = ""
    traceback: str | None = None


@value_object
class _FinerUsage:
    """What the columns do not say of tokens."""

    reasoning_tokens: int | None = 0
    cached_tokens: int | None = 0


@value_object
class _FinerSpent:
    """What the columns do not say of the requests of the candidate."""

    usage: _FinerUsage = _FinerUsage()
    retries: int = 0
    cut: int = 0


_NO_MORE_SPENT = _FinerSpent()


@value_object
class Rest:
    """What is in an attempt beside its columns, by the same names.

    Older versions wrote the whole attempt: of that, this is a part, and `started_at` was there alone.
    """

    outcome: Outcome | None = None
    scores: tuple[Score, ...] = ()
    fault: _Explanation | None = None
    spent: _FinerSpent | None = None
    roles: Mapping[str, Spent] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    started_at: float | None = None


def rest_of(attempt: Attempt) -> Rest:
    """Return what the columns do not say of *attempt*."""
    fault = attempt.fault
    return Rest(
        outcome=attempt.outcome,
        scores=attempt.scores,
        fault=None if fault is None else _explanation(fault),
        spent=_finer(attempt.spent),
        roles=attempt.roles,
        phases=attempt.phases,
    )


def _explanation(fault: Fault) -> _Explanation:
    return _Explanation(message=fault.message, traceback=fault.traceback)


def rest_of_whole(known: Rest) -> Rest:
    """Return the rest of an attempt from one that was written whole, by an older version."""
    spent = None if known.spent == _NO_MORE_SPENT else known.spent
    return replace(known, spent=spent, started_at=None)


def _finer(spent: Spent) -> _FinerSpent | None:
    usage = spent.usage
    if not (spent.retries or spent.cut or usage.reasoning_tokens != 0 or usage.cached_tokens != 0):
        return None  # nearly always
    return _FinerSpent(
        usage=_FinerUsage(
            reasoning_tokens=usage.reasoning_tokens, cached_tokens=usage.cached_tokens
        ),
        retries=spent.retries,
        cut=spent.cut,
    )


def row_of(trial: int, attempt: Attempt, *, blob: str | None, rest: bytes | None) -> Row:
    """Return the row of *attempt* in the table `attempt`."""
    spent, fault, bill = attempt.spent, attempt.fault, attempt.bill
    usage = spent.usage
    row: Row = (
        trial,
        attempt.number,
        CODES[attempt.status],
        real(attempt.score),
        None if attempt.passed is None else int(attempt.passed),
        fault.boundary if fault else None,
        int(fault.transient) if fault else None,
        real(attempt.started_at),
        real(attempt.elapsed_s),
        real(spent.model_s),
        real(spent.first_token_s),
        real(spent.load_s),
        spent.requests,
        usage.input_tokens,
        usage.output_tokens,
        real(usage.cost_usd),
        ",".join(spent.flags) or None,
        real(bill.cost_usd),
        bill.tokens,
        real(bill.unsure_usd),
        bill.unsure_tokens,
        bill.unpriced,
        blob,
        rest,
    )
    return (*row, row_crc(*row))


_NAMES = ", ".join(("trial", *ATTEMPT))
_PLACES = ", ".join("?" * (1 + len(ATTEMPT)))
INSERT = f"INSERT INTO attempt VALUES ({_PLACES})"  # noqa: S608 -- no user text
INSERT_EARLIER = f"INSERT INTO earlier_attempt ({_NAMES}) VALUES ({_PLACES})"  # noqa: S608
KEEP_EARLIER = (
    f"INSERT INTO earlier_attempt ({_NAMES}) SELECT {_NAMES} FROM attempt"  # noqa: S608
    " WHERE trial = ? AND number < ?"
)


def put_attempt(db: sqlite3.Connection, row: Row, *, counts: bool) -> None:
    """Write *row* as the attempt that counts of its trial, or as one that another followed."""
    db.execute(INSERT if counts else INSERT_EARLIER, row)


COLUMNS = ", ".join(
    f"a.{name}" for name in ATTEMPT[:-3]
)  # all that `attempt_of` needs but the rest


def attempt_of(columns: Sequence[Any], rest: Rest) -> Attempt:
    """Return the attempt that has these `COLUMNS` and this *rest*."""
    (
        number, status, score, passed, boundary, transient,
        started_at, elapsed_s, model_s, first_token_s, load_s,
        requests, input_tokens, output_tokens, cost_usd, flags,
        billed_usd, billed_tokens, unsure_usd, unsure_tokens, unpriced,
    ) = columns  # fmt: skip
    finer = rest.spent or _NO_MORE_SPENT
    return Attempt(
        number=number,
        status=STATUSES[status],
        started_at=started_at if started_at is not None else rest.started_at or 0.0,
        elapsed_s=elapsed_s,
        outcome=rest.outcome,
        scores=rest.scores,
        score=score,
        passed=None if passed is None else bool(passed),
        fault=None if boundary is None else _fault(boundary, transient, rest.fault),
        spent=Spent(
            requests=requests,
            usage=Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                reasoning_tokens=finer.usage.reasoning_tokens,
                cached_tokens=finer.usage.cached_tokens,
                cost_usd=cost_usd,
            ),
            model_s=model_s,
            first_token_s=first_token_s,
            load_s=load_s,
            retries=finer.retries,
            flags=tuple(flags.split(",")) if flags else (),
            cut=finer.cut,
        ),
        roles=rest.roles,
        bill=Bill(
            cost_usd=billed_usd,
            tokens=billed_tokens,
            unsure_usd=unsure_usd,
            unsure_tokens=unsure_tokens,
            unpriced=unpriced,
        ),
        phases=rest.phases,
    )


def _fault(boundary: str, transient: int | None, explanation: _Explanation | None) -> Fault:
    known = explanation or _Explanation()
    return Fault(
        boundary=boundary,
        message=known.message,
        transient=bool(transient),
        traceback=known.traceback,
    )
