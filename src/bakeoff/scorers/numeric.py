"""The scorer `numeric`: compares a number in the answer with the expected one."""

import decimal
import math
import re
from collections import deque
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Decimal, InvalidOperation
from typing import Literal, NamedTuple

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task

_NUMBER = re.compile(
    r"""
    (?: (?<![\w)\]]) (?P<sign> [-+−]?[$€£¥₹]?[-+−]? ) )?   # a dash after a word is a hyphen
    (?<![^\W_]) (?<![0-9]\.)                                # not x2, not the 3 of 1.2.3
    (?:
      (?<![0-9]/) (?P<over> [0-9]{1,40} ) / (?P<under> [0-9]{1,40} ) (?![0-9/]|\.[0-9])
    |
      (?P<whole> [0-9]{1,3} (?: ,[0-9]{3} )+ (?![0-9]) | [0-9]++ | (?<!\.)(?=\.[0-9]) )
      (?P<part> \.[0-9]++ )?
      (?: [eE](?P<exponent> [-+−]?[0-9]++ )
        | [ ]?(?: [×x*·] | \\times | \\cdot )[ ]?10
          (?: \^\{?(?P<power> [-+−]?[0-9]++ )\}? | (?P<raised> [⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++ ) ) )?
    )
    (?P<percent> [ ]?\\?% )?
    """,
    re.VERBOSE,
)
_PLAIN = str.maketrans("−⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-+-0123456789")
# The widest exponent range, without exceptions: the digits come from the answer.
_CONTEXT = decimal.Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_READ = 200_000  # characters; enough for any answer, and a runaway one still costs little


class Number(NamedTuple):
    """A number as read from a text, and whether a percent sign followed it."""

    value: Decimal
    percent: bool


@dataclass(frozen=True, kw_only=True)
class Numeric:
    """1 where the last (or first) number in the answer is the target.

    It may be off by `tolerance`, or by `relative` × the target, whichever allows more; without
    them it must be equal (1.0 is 1). Numbers are read in English notation: 1,234.5, -7, −7, .5,
    6e23, 6 × 10^23, 3/4, $5, 45%. Position alone decides which one counts; words around it do not.
    A dash after a letter or digit is a hyphen (GPT-4, 1-3), after anything else a minus. Where only
    one of answer and target has a percent sign, 45% is both 45 and 0.45. Of a longer answer only
    the last (or first) 200 000 characters are read.
    """

    tolerance: float = 0.0
    relative: float = 0.0
    take: Literal["last", "first"] = "last"

    def __post_init__(self) -> None:
        for name, value in (("tolerance", self.tolerance), ("relative", self.relative)):
            if not math.isfinite(value) or value < 0:
                raise UsageError(f"scorer 'numeric': `{name}` is {value}; use 0 or more")

    def check(self, task: Task) -> None:
        """Refuse a task whose target is not a number."""
        _target(task)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Extract one number from the answer and compare it."""
        target = _target(task)
        number = (
            last_number(outcome.answer) if self.take == "last" else first_number(outcome.answer)
        )
        if number is None:
            return Score(scorer="numeric", value=0.0, explanation="no number in the answer")
        right = any(self._close(a, b) for a, b in _readings(number, target))
        wanted, got = (one_line(str(n.value), width=60) for n in (target, number))
        return Score(
            scorer="numeric",
            value=float(right),
            explanation=None if right else f"expected {wanted}, got {got}",
            details={"found": got},
        )

    def _close(self, value: Decimal, target: Decimal) -> bool:
        if value == target:
            return True
        allowed = _CONTEXT.multiply(Decimal(repr(self.relative)), _CONTEXT.abs(target))
        allowed = max(allowed, Decimal(repr(self.tolerance)))
        off = _CONTEXT.abs(_CONTEXT.subtract(value, target))
        return bool(off <= allowed)


def first_number(text: str) -> Number | None:
    """Return the first number in *text*."""
    match = _NUMBER.search(text, 0, _READ)
    return _read(match) if match else None


def last_number(text: str) -> Number | None:
    """Return the last number in *text*."""
    last = deque(_NUMBER.finditer(text, max(0, len(text) - _READ)), maxlen=1)
    return _read(last[0]) if last else None


def _read(match: re.Match[str]) -> Number | None:
    sign = -1 if {"-", "−"} & set(match["sign"] or "") else 1
    try:
        if match["over"]:
            value = _CONTEXT.divide(Decimal(match["over"]), Decimal(match["under"]))
        else:
            exponent = match["exponent"] or match["power"] or match["raised"] or "0"
            digits = (match["whole"] or "0").replace(",", "") + (match["part"] or "")
            value = Decimal(f"{digits}e{exponent.translate(_PLAIN)}")
    except InvalidOperation:  # an exponent beyond all bounds
        return None
    if not value.is_finite():  # a division by zero
        return None
    return Number(value.copy_negate() if sign < 0 else value, match["percent"] is not None)


def _target(task: Task) -> Number:
    target = task.target
    if isinstance(target, str) and (match := _NUMBER.fullmatch(target.strip())):
        number = _read(match)
    elif isinstance(target, int) and not isinstance(target, bool):
        number = Number(Decimal(target), percent=False)
    elif isinstance(target, float) and math.isfinite(target):
        number = Number(Decimal(repr(target)), percent=False)
    else:
        number = None
    if number is None:
        raise UsageError(
            f"task {task.id!r}: scorer 'numeric' needs a number as `expected`, not {target!r}; "
            'write it as 42, 0.5 or "3/4"',
            task=task.id,
        )
    return number


def _readings(number: Number, target: Number) -> list[tuple[Decimal, Decimal]]:
    plain = (number.value, target.value)
    if number.percent == target.percent:
        return [plain]
    if number.percent:
        return [plain, (number.value.scaleb(-2, _CONTEXT), target.value)]
    return [plain, (number.value, target.value.scaleb(-2, _CONTEXT))]
