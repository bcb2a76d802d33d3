"""The report of the tests from the grading box, trusted where it is signed and complete."""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bakeoff._lib.sanitize import well_formed
from bakeoff.core.values import Json

TestStatus = Literal["passed", "failed", "skipped", "not run"]
REPORT_PREFIX = "bakeoff-report "
_BY_SEVERITY: tuple[TestStatus, ...] = ("passed", "skipped", "failed")


@dataclass(frozen=True, kw_only=True)
class Control:
    """The results of the decoys, which must fail; `in_place` says whether they could be used."""

    in_place: bool
    whole: bool
    passed: tuple[str, ...]
    failed: int

    @property
    def objection(self) -> str | None:
        """Why the tests cannot be trusted; None where every decoy failed, as it must."""
        if not self.in_place:
            return None
        if self.passed:
            return (
                f"{self.passed[0]} passes with a wrong expected value too: the solution changes how "
                "tests are judged"
            )
        if not self.whole or not self.failed:
            return "run with wrong expected values, the tests did not report to their end"
        return None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The status of each test; `whole` only where the report is complete and the runner's own.

    `planned` are the tests that the files are known to contain. `cannot` says why the runner could
    not start, `missing` which files it did not find. `printed` is what the tests' own code printed
    about custom metrics; `hidden_by_box` are modules of the solution that the box's own replaced.
    """

    whole: bool
    code: int
    tests: Mapping[str, TestStatus] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    uncollected: Mapping[str, str] = field(default_factory=dict)
    planned: tuple[str, ...] = ()
    control: Control | None = None
    out_of_time: bool = False
    cannot: str | None = None
    missing: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    hidden_by_box: tuple[str, ...] = ()

    @property
    def passed(self) -> list[str]:
        """The tests that passed in every phase."""
        return [name for name, how in self.tests.items() if how == "passed"]

    @property
    def unreported(self) -> list[str]:
        """The planned tests that were not reported; none where files could not be collected."""
        reported = {name.partition("[")[0] for name in self.tests}
        return [] if self.uncollected else [name for name in self.planned if name not in reported]

    def named(self, name: str) -> list[str]:
        """Return the tests that match *name*: in full, or without file, class or parameters."""
        return [test for test in self.tests if _is_named(test, name)]


def _is_named(test: str, name: str) -> bool:
    bare = test.partition("[")[0]
    return any(
        full == name or full.endswith((f"::{name}", f".{name}", f"/{name}"))
        for full in (test, bare)
    )


def split_signed(output: str, secret: bytes) -> tuple[list[dict[str, Json]], str]:
    """Return the messages signed with *secret*, and the output without all message lines."""
    messages, rest = [], []
    for line in output.split("\n"):
        if not line.startswith(REPORT_PREFIX):
            rest.append(line)
            continue
        seal, _, text = line.removeprefix(REPORT_PREFIX).partition(" ")
        expected = hmac.new(secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        if hmac.compare_digest(seal.encode("utf-8", "replace"), expected.encode()):
            messages.append(_plain(text))
    return messages, "\n".join(rest).strip("\n")


def _plain(text: str) -> dict[str, Json]:
    """Parse *text*, with all text in it encodable as UTF-8."""
    value: dict[str, Json] = json.loads(text)
    again: dict[str, Json] = json.loads(well_formed(json.dumps(value, ensure_ascii=False)))
    return again


def read_report(message: Mapping[str, Json]) -> Report:
    """Parse the report that the overseer signed."""
    records = message["records"]
    code = message["code"]
    assert isinstance(records, list)  # noqa: S101 -- it is ours, and signed
    assert isinstance(code, int)  # noqa: S101
    tests: dict[str, TestStatus] = {}
    why: dict[str, str] = {}
    uncollected: dict[str, str] = {}
    cannot: str | None = None
    missing: tuple[str, ...] = ()
    ready = False
    for record in records:
        assert isinstance(record, dict)  # noqa: S101
        match record:
            case {"collected": [*names]}:
                tests |= {str(name): "not run" for name in names if str(name) not in tests}
            case {"uncollected": str(name), "how": "skipped", "text": str(text)}:
                tests[name], why[name] = "skipped", text
            case {"uncollected": str(name), "text": str(text)}:
                uncollected[name] = text
            case {"test": str(name), "phase": str(phase), "how": str(how), "text": str(text)}:
                tests[name] = _worse_status(tests.get(name, "not run"), how, phase)
                if text:
                    why.setdefault(name, text)
            case {"ready": True}:
                ready = True
            case {"cannot": str(text)} if not ready:  # later, the solution may say so
                cannot = text
            case {"missing": [*paths]}:
                missing = tuple(map(str, paths))
    return Report(
        planned=_names(message.get("planned")),
        control=_control(message.get("control")),
        out_of_time=bool(message.get("out_of_time")),
        whole=bool(message["whole"]),
        code=code,
        tests=tests,
        why=why,
        uncollected=uncollected,
        cannot=cannot,
        missing=missing,
        printed=tuple(_values(records, "printed")),
        hidden_by_box=tuple(name for names in _values(records, "hidden_by_box") for name in names),
    )


def _values(records: Sequence[Json], key: str) -> Iterator[Any]:
    """Yield what the test process reported under *key*."""
    yield from (record[key] for record in records if isinstance(record, dict) and key in record)


def _names(value: Json) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _control(value: Json) -> Control | None:
    match value:
        case {"in_place": bool(in_place), "whole": bool(whole), "failed": int(failed), **rest}:
            passed = rest.get("passed")
            names = tuple(map(str, passed)) if isinstance(passed, list) else ()
            return Control(in_place=in_place, whole=whole, passed=names, failed=failed)
    return None


def _worse_status(before: TestStatus, how: str, phase: str) -> TestStatus:
    """Return the status of a test after one more phase; passed only where it was called."""
    now: TestStatus = how if how in _BY_SEVERITY else "failed"
    if now == "passed" and phase != "call":
        return before
    if before == "not run":
        return now
    return max(before, now, key=_BY_SEVERITY.index)


def counts(tests: Mapping[str, TestStatus], uncollected: Sequence[str]) -> dict[str, Json]:
    """Return the number of tests with each status."""
    kinds: tuple[TestStatus, ...] = ("passed", "failed", "skipped", "not run")
    statuses = list(tests.values())
    return {"uncollected": len(uncollected), **{kind: statuses.count(kind) for kind in kinds}}
