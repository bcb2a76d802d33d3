"""What the tests reported from the clean room: believed where it is signed and whole."""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bakeoff._lib.sanitize import well_formed
from bakeoff.core.values import Json

How = Literal["passed", "failed", "skipped", "not run"]
MARK = "bakeoff-report "
_WORST: tuple[How, ...] = ("passed", "skipped", "failed")


@dataclass(frozen=True, kw_only=True)
class Control:
    """How the decoys went, the tests that must fail; `in_place` where they could be used at all."""

    in_place: bool
    whole: bool
    passed: tuple[str, ...]
    failed: int

    @property
    def objection(self) -> str | None:
        """Why the tests cannot be believed; None where every decoy failed, as it must."""
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
    """How each test went. `whole` only where nothing is missing or not the runner's own.

    `planned` are the tests that the files are known to hold. `cannot` says why the runner could not
    begin, `missing` which files it did not find. `printed` is what the tests' own code printed about
    custom metrics; `hidden_by_box` are modules of the solution for which the box's own were taken.
    """

    whole: bool
    code: int
    tests: Mapping[str, How] = field(default_factory=dict)
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
        """The planned tests of which nothing was heard; of files that could not be read, none."""
        heard = {name.partition("[")[0] for name in self.tests}
        return [] if self.uncollected else [name for name in self.planned if name not in heard]

    def named(self, name: str) -> list[str]:
        """Return the tests that *name* stands for: in full, or without file, class or parameters."""
        return [test for test in self.tests if _is_named(test, name)]


def _is_named(test: str, name: str) -> bool:
    bare = test.partition("[")[0]
    return any(
        full == name or full.endswith((f"::{name}", f".{name}", f"/{name}"))
        for full in (test, bare)
    )


def signed(output: str, secret: bytes) -> tuple[list[dict[str, Json]], str]:
    """Return what was said under *secret*, and the output without all such lines."""
    said, rest = [], []
    for line in output.split("\n"):
        if not line.startswith(MARK):
            rest.append(line)
            continue
        seal, _, text = line.removeprefix(MARK).partition(" ")
        right = hmac.new(secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        if hmac.compare_digest(seal.encode("utf-8", "replace"), right.encode()):
            said.append(_plain(text))
    return said, "\n".join(rest).strip("\n")


def _plain(text: str) -> dict[str, Json]:
    """Return what *text* says, with all names and messages fit to be stored."""
    value: dict[str, Json] = json.loads(text)
    again: dict[str, Json] = json.loads(well_formed(json.dumps(value, ensure_ascii=False)))
    return again


def read_report(said: Mapping[str, Json]) -> Report:
    """Return the report that the overseer signed."""
    records = said["records"]
    code = said["code"]
    assert isinstance(records, list)  # noqa: S101 -- it is ours, and signed
    assert isinstance(code, int)  # noqa: S101
    tests: dict[str, How] = {}
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
                tests[name] = _worse(tests.get(name, "not run"), how, phase)
                if text:
                    why.setdefault(name, text)
            case {"ready": True}:
                ready = True
            case {"cannot": str(text)} if not ready:  # later, the solution may say so
                cannot = text
            case {"missing": [*paths]}:
                missing = tuple(map(str, paths))
    return Report(
        planned=_names(said.get("planned")),
        control=_control(said.get("control")),
        out_of_time=bool(said.get("out_of_time")),
        whole=bool(said["whole"]),
        code=code,
        tests=tests,
        why=why,
        uncollected=uncollected,
        cannot=cannot,
        missing=missing,
        printed=tuple(_told(records, "printed")),
        hidden_by_box=tuple(name for names in _told(records, "hidden_by_box") for name in names),
    )


def _told(records: Sequence[Json], key: str) -> Iterator[Any]:
    """Yield what the process of the tests said under *key*."""
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


def _worse(before: How, how: str, phase: str) -> How:
    """Return how a test stands after one more phase: passed only where it was called."""
    now: How = how if how in _WORST else "failed"
    if now == "passed" and phase != "call":
        return before
    if before == "not run":
        return now
    return max(before, now, key=_WORST.index)


def counts(tests: Mapping[str, How], uncollected: Sequence[str]) -> dict[str, Json]:
    """Return how many tests went which way."""
    kinds: tuple[How, ...] = ("passed", "failed", "skipped", "not run")
    ways = list(tests.values())
    return {"uncollected": len(uncollected), **{kind: ways.count(kind) for kind in kinds}}
