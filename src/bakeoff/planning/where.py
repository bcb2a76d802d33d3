"""The expressions of `--where`: which tasks are meant, by the values of their columns.

    lang == 'de' and level > 2
    subject in ('law', 'medicine') and not (question contains "page")

Nothing is executed: the text is parsed into a tree of comparisons. A column is compared with a number
as a number, where it holds one, and with anything else as text; a column that a task lacks is empty.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<number> -?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w) )
    | (?P<column> `[^`]+` )
    | (?P<word> [^\W\d][\w.]* )
    | (?P<sign> ==|!=|<=|>=|<|>|=|\(|\)|,|\[|\] )
    )""",
    re.VERBOSE,
)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "startswith", "endswith")  # fmt: skip
_WORDS = frozenset({"and", "or", "not", "in", "contains", "startswith", "endswith", "true", "false", "null"})  # fmt: skip
_OTHERWISE: Mapping[str, str] = {"&&": "and", "||": "or", "!(": "not"}  # in other languages
_MEANT: Mapping[str, str] = {"is": "==", "AND": "and", "OR": "or", "IN": "in", "NOT": "not", "LIKE": "contains", "like": "contains"}  # fmt: skip
_LONGEST, _DEEPEST = 10_000, 50
_ORDER: Mapping[str, Callable[[int], bool]] = {
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}

Columns = Mapping[str, Json]
_Test = Callable[[Columns], bool]
_Value = Callable[[Columns], Json]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


@value_object
class Where:
    """A parsed expression: what it says, the columns that it reads, and whether a task is meant."""

    text: str
    label: str  # how a message calls the expression
    columns: Mapping[str, int]  # and where each stands first
    matches: _Test

    def check(self, known: Sequence[str]) -> None:
        """Raise where the expression names a column that none of the tasks has."""
        for name, at in self.columns.items():
            if name not in known:
                why = f"no column {name!r}; {did_you_mean(name, known)}"
                if name not in self.text[:at] and self.text[:at].rstrip()[-1:] in {*"=<>(,["}:
                    why += f"; a text stands in quotes: '{name}'"
                raise _wrong(self.label, self.text, at, why)


def parse_where(text: str, label: str = "--where") -> Where:
    """Return the expression *text*, or raise an error that shows where it is wrong."""
    return _Parser(text, label).parse()


def _wrong(label: str, text: str, at: int, why: str) -> UsageError:
    beginning = max(0, at - 60)
    excerpt = text[beginning : at + 40].replace("\n", " ")
    return UsageError(
        f"{label}, character {at + 1}: {why}\n    {excerpt}\n    {' ' * (at - beginning)}^"
    )


class _Parser:
    """Recursive descent: or, and, not, comparison, value."""

    def __init__(self, text: str, label: str) -> None:
        self._text = text
        self._label = label
        if len(text) > _LONGEST:
            raise UsageError(f"{label}: the expression is longer than {_LONGEST} characters")
        self._tokens = list(_tokens(text, label))
        self._next = 0
        self._depth = 0
        self._columns: dict[str, int] = {}

    def parse(self) -> Where:
        if self._token.kind == "end":
            raise self._error("there is no expression; write one such as lang == 'de'")
        test = self._either()
        if self._token.kind != "end":
            meant = _MEANT.get(self._token.text)
            raise self._error(
                f"write `{meant}` instead" if meant else "`and` or `or` is expected here"
            )
        return Where(text=self._text, label=self._label, columns=self._columns, matches=test)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _error(self, why: str) -> UsageError:
        return _wrong(self._label, self._text, self._token.at, why)

    def _took(self, *texts: str) -> str | None:
        """Take the next token where it is one of *texts*."""
        token = self._token
        if token.kind in {"word", "sign"} and token.text in texts:
            self._next += 1
            return token.text
        return None

    def _either(self) -> _Test:
        tests = [self._all()]
        while self._took("or"):
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)

    def _all(self) -> _Test:
        tests = [self._one()]
        while self._took("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def _one(self) -> _Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"nested more than {_DEEPEST} levels deep")
        try:
            if self._took("not"):
                test = self._one()
                return lambda row: not test(row)
            if self._took("("):
                inner = self._either()
                self._expect(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> _Test:
        left = self._value()
        if self._token.text == "=" and self._token.kind == "sign":
            raise self._error("to compare, write two equals signs: ==")
        operator = self._took(*_COMPARISONS)
        if operator is None and self._took("not"):
            if not self._took("in"):
                raise self._error("`in` is expected after `not`")
            operator = "not in"
        if operator is None:  # a column alone: whether it holds something
            return lambda row: _is_true(left(row))
        if operator in {"in", "not in"}:
            members = self._members()
            wanted = operator == "in"
            return lambda row: any(_compare(left(row), m(row)) == 0 for m in members) is wanted
        right = self._value()
        if operator in _ORDER:
            return _ordering(operator, left, right)
        return _containing(operator, left, right)

    def _members(self) -> list[_Value]:
        closing = {"(": ")", "[": "]"}
        opened = self._took(*closing)
        if opened is None:
            raise self._error("a list is expected after `in`, such as ('de', 'fr')")
        members = [self._value()]
        while self._took(","):
            if self._token.text == closing[opened]:
                break
            members.append(self._value())
        self._expect(closing[opened])
        return members

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            raise self._error(f"{sign!r} is expected here")

    def _value(self) -> _Value:
        token = self._token
        value: Json
        if token.kind == "text":
            value = re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)
        elif token.kind == "number":
            value = float(token.text)
        elif token.kind == "word" and token.text in {"true", "false", "null"}:
            value = "" if token.text == "null" else token.text
        elif token.kind == "column" or (token.kind == "word" and token.text not in _WORDS):
            name = token.text.strip("`")
            self._columns.setdefault(name, token.at)
            self._next += 1
            return lambda row: row.get(name, "")
        else:
            raise self._error("a column, a number or a text in quotes is expected here")
        self._next += 1
        return lambda _: value


def _tokens(text: str, label: str) -> Iterator[_Token]:
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            quote = text[start] in "'\"`"
            why = "this quote is never closed" if quote else f"unexpected {text[start]!r}"
            if meant := _OTHERWISE.get(text[start : start + 2]):
                why += f"; write `{meant}`"
            raise _wrong(label, text, start, why)
        yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
        at = match.end()
    yield _Token("end", "", end)


def _ordering(operator: str, left: _Value, right: _Value) -> _Test:
    holds = _ORDER[operator]

    def test(row: Columns) -> bool:
        order = _compare(left(row), right(row))
        return operator == "!=" if order is None else holds(order)

    return test


def _containing(operator: str, left: _Value, right: _Value) -> _Test:
    def test(row: Columns) -> bool:
        outer, inner = left(row), _as_text(right(row))
        if isinstance(outer, list | tuple) and operator == "contains":
            return inner in map(_as_text, outer)
        text = _as_text(outer)
        if operator == "contains":
            return inner in text
        return text.startswith(inner) if operator == "startswith" else text.endswith(inner)

    return test


def _compare(left: Json, right: Json) -> int | None:
    """Return -1, 0 or 1; None where one is a number and the other is none."""
    if _is_number(left) or _is_number(right):
        a, b = _as_number(left), _as_number(right)
        return None if a is None or b is None else (a > b) - (a < b)
    first, second = _as_text(left), _as_text(right)
    return (first > second) - (first < second)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _as_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _is_true(value: Json) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in {"", "false", "0", "no"}
    return bool(value)
