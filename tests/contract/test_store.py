"""What every store promises, in memory and on a disk."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from bakeoff.core.budget import Bill
from bakeoff.core.candidate import Limits
from bakeoff.core.errors import BakeoffError
from bakeoff.core.lazy_tasks import LazyTasks, mapped, outlines_of
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Ledger, Store
from bakeoff.core.record import Attempt, Status, rule_of
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec
from bakeoff.core.workspace import Workspace
from bakeoff.stats.by_task import by_task
from bakeoff.stats.estimate import is_checked
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore
from bakeoff.stores.memory import MemoryStore
from support.plans import attempt, candidate, plan, scored_by, task, tasks


class Shelf(Protocol):
    """A place with one run in it, that can be written again and again."""

    def open(self) -> Store: ...
    def ledger(self) -> Ledger: ...


class MemoryShelf:
    def __init__(self) -> None:
        self._store = MemoryStore()

    def open(self) -> Store:
        return self._store

    def ledger(self) -> Ledger:
        return self._store


class SqliteShelf:
    def __init__(self, folder: Path, *, most_held: int = 1000) -> None:
        self.folder = folder
        self._most_held = most_held

    def open(self) -> Store:
        return SqliteStore(self.folder)

    def ledger(self) -> Ledger:
        return SqliteLedger(self.folder, most_held=self._most_held)


@pytest.fixture(params=["memory", "sqlite", "sqlite, tasks read as needed"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    if request.param == "memory":
        return MemoryShelf()
    return SqliteShelf(tmp_path / "run", most_held=1000 if request.param == "sqlite" else 0)


Entry = tuple[Trial, Attempt]


def keep(shelf: Shelf, given: Plan, *entries: Entry) -> list[int | None]:
    """Write *entries* one after another in a session of their own; return what is next of each."""

    async def session() -> list[int | None]:
        store = shelf.open()
        try:
            store.freeze(given)
            for trial, tried in entries:
                await store.append(trial, tried)
            return list(store.next_attempts(list(given)))
        finally:
            await store.close()

    return asyncio.run(session())


def due(shelf: Shelf, given: Plan) -> list[int | None]:
    """What a resume would run."""
    return keep(shelf, given)


def test_of_a_fresh_plan_every_trial_is_due_for_the_first_time(shelf: Shelf) -> None:
    assert due(shelf, plan(*tasks(3), rollouts=2)) == [1] * 6


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.LIMITED])
def test_a_finished_trial_is_not_due_again(shelf: Shelf, status: Status) -> None:
    given = plan(*tasks(2))
    first, _ = given
    assert keep(shelf, given, (first, attempt(status=status))) == [None, 1]
    assert due(shelf, given) == [None, 1]


@pytest.mark.parametrize("status", [Status.FAULTED, Status.CANCELLED])
def test_a_broken_trial_is_due_under_the_next_number(shelf: Shelf, status: Status) -> None:
    given = plan(*tasks(2))
    first, _ = given
    broken = [(first, attempt(number, status=status)) for number in (1, 2)]
    assert keep(shelf, given, *broken) == [3, 1]
    assert due(shelf, given) == [3, 1]


def test_the_attempt_that_counts_is_the_last(shelf: Shelf) -> None:
    given = plan(task())
    (only,) = given
    keep(shelf, given, (only, attempt(1, status=Status.FAULTED)))
    keep(shelf, given, (only, attempt(2, answer="at last")))
    ledger = shelf.ledger()
    (record,) = ledger.records()
    (row,) = ledger.rows()
    assert record.attempt == attempt(2, answer="at last")
    assert (row.status, row.attempts, row.fault_boundary) == ("completed", 2, None)
    assert [r.attempt.number for r in ledger.attempts("t1")] == [1, 2]


@pytest.mark.parametrize("number", [1, 2])
def test_the_same_attempt_twice_is_refused_and_changes_nothing(shelf: Shelf, number: int) -> None:
    given = plan(task())
    (only,) = given
    first = [(only, attempt(n, status=Status.FAULTED)) for n in range(1, number)]
    keep(shelf, given, *first, (only, attempt(number, answer="first")))
    with pytest.raises(BakeoffError):
        keep(shelf, given, (only, attempt(number, answer="second")))
    (record,) = shelf.ledger().records()
    assert record.attempt.outcome is not None
    assert record.attempt.outcome.answer == "first"


def test_rows_records_and_attempts_agree(shelf: Shelf) -> None:
    given = plan(
        *tasks(4, category="c"),
        rollouts=2,
        candidates=[candidate("a"), candidate("b", temperature=1)],
    )
    statuses = [Status.COMPLETED, Status.FAULTED, Status.LIMITED, Status.COMPLETED]
    entries = [
        (trial, attempt(status=statuses[n % 4], score=None if n % 3 else 0.5))
        for n, trial in enumerate(given)
    ]
    keep(shelf, given, *entries[:-3])
    ledger = shelf.ledger()
    rows, records = list(ledger.rows()), list(ledger.records())
    assert len(rows) == len(records) == 13
    assert [(r.task_id, r.candidate_id, r.rollout) for r in rows] == [
        (r.task_id, r.candidate_id, r.rollout) for r in records
    ]
    for row, record in zip(rows, records, strict=True):
        kept = record.attempt
        assert (row.category, row.status, row.score) == ("c", kept.status.value, kept.score)
        assert row.passed == kept.passed
        assert row.attempts == kept.number
        assert (row.fault_boundary is None) == (kept.fault is None)
        assert (row.elapsed_s, row.model_s, row.requests) == (0.5, 0.25, 1)
        assert (row.input_tokens, row.output_tokens, row.cost_usd) == (7, 3, None)
        assert list(ledger.attempts(record.name)) == [record]


def test_a_trial_is_found_by_its_name_or_by_its_task(shelf: Shelf) -> None:
    given = plan(*tasks(2), rollouts=2)
    keep(shelf, given, *((trial, attempt()) for trial in given))
    ledger = shelf.ledger()
    assert [r.rollout for r in ledger.attempts("t0001")] == [0, 1]
    assert [r.rollout for r in ledger.attempts("t0001@m")] == [0, 1]
    assert [r.name for r in ledger.attempts("t0001@m#1")] == ["t0001@m#1"]
    assert list(ledger.attempts("t1")) == []


def test_a_trial_is_found_by_a_name_of_odd_characters(shelf: Shelf) -> None:
    odd = "a@b\x00c' \N{SLICE OF PIZZA}@"
    given = plan(task(odd), task("a"), task("a@b"))
    keep(shelf, given, *((trial, attempt()) for trial in given))
    ledger = shelf.ledger()
    for name in (odd, f"{odd}@m", f"{odd}@m#0"):
        assert [r.task_id for r in ledger.attempts(name)] == [odd]


def test_the_plan_comes_back_with_the_same_identity(shelf: Shelf) -> None:
    rich = task(
        "rich",
        prompt="naïve “quotes” 漢字 \N{SLICE OF PIZZA}",
        parameters={"temperature": 0.1, "stop": ["\n"]},
        target={"a": [1, 2.5, None]},
        scorers=scored_by("exact", "style", weights=(0.7, 0.0)),
        pass_threshold=0.6,
        time_s=9.5,
    )
    given = plan(
        rich, *tasks(3), rollouts=3, candidates=[candidate("a"), candidate("b", temperature=1)],
        limits=Limits(time_s=1.5, requests=3),
    )  # fmt: skip
    due(shelf, given)
    planned = shelf.ledger().planned()
    assert planned.digest == given.digest
    assert [trial.id for trial in planned] == [trial.id for trial in given]


def test_a_whole_number_where_a_fraction_is_meant_is_the_same_plan(shelf: Shelf) -> None:
    weights = scored_by("exact", weights=(1,))
    given = plan(task(time_s=30, pass_threshold=1, scorers=weights), limits=Limits(time_s=60))
    due(shelf, given)
    assert shelf.ledger().planned().digest == given.digest


def test_a_plan_that_was_read_from_a_ledger_goes_on_there(shelf: Shelf) -> None:
    given = plan(*tasks(3), rollouts=2)
    first, second, *_ = given
    keep(shelf, given, (first, attempt()))
    stored = shelf.ledger().planned()
    assert keep(shelf, stored, (second, attempt())) == [None, None, 1, 1, 1, 1]
    assert shelf.ledger().planned() == given
    assert [block.tasks[1] for block in stored.blocks] == [given.blocks[0].tasks[1]]
    assert [block.tasks[1:] for block in stored.blocks] == [given.blocks[0].tasks[1:]]


def test_a_plan_that_shrank_hides_what_is_outside_of_it_and_keeps_it(shelf: Shelf) -> None:
    four = tasks(4)
    wide, narrow = plan(*four, rollouts=2), plan(*four[:2], rollouts=1)
    keep(shelf, wide, *((trial, attempt()) for trial in wide))
    assert due(shelf, narrow) == [None, None]
    ledger = shelf.ledger()
    names = ["t0000@m#0", "t0001@m#0"]
    assert sorted(r.name for r in ledger.records()) == names
    assert sorted((r.task_id, r.rollout) for r in ledger.rows()) == [("t0000", 0), ("t0001", 0)]
    assert list(ledger.attempts("t0003")) == []
    assert due(shelf, wide) == [None] * 8


def test_a_task_whose_content_changed_is_due_again(shelf: Shelf) -> None:
    before, after = plan(task(prompt="2 + 2")), plan(task(prompt="2 + 3"))
    keep(shelf, before, *((trial, attempt()) for trial in before))
    assert due(shelf, after) == [1]
    assert list(shelf.ledger().records()) == []


def test_a_task_whose_label_changed_is_not_due_again(shelf: Shelf) -> None:
    before = plan(task(category="old"))
    after = plan(task(category="new", name="A better name"))
    keep(shelf, before, *((trial, attempt()) for trial in before))
    assert due(shelf, after) == [None]


def test_the_groups_of_tasks_come_back_with_the_plan_and_reach_the_statistics(shelf: Shelf) -> None:
    given = plan(task("a", group="text 1"), task("b", group="text 1"), task("c"))
    keep(shelf, given, *((trial, attempt()) for trial in given))
    ledger = shelf.ledger()
    assert [t.group for t in ledger.planned().tasks] == ["text 1", "text 1", None]
    by_tasks = by_task(ledger.planned(), ledger.rows())
    assert [cell.group for cell in by_tasks] == ["text 1", "text 1", None]


def test_a_large_answer_comes_back_whole(shelf: Shelf) -> None:
    given = plan(*tasks(2))
    large = "".join(f"{n:x} \N{SLICE OF PIZZA} " for n in range(600_000))
    assert len(large.encode()) > 5_000_000
    # the same large answer twice: content-addressed files must not get into each other's way
    keep(shelf, given, *((trial, attempt(answer=large)) for trial in given))
    answers = [r.attempt.outcome.answer for r in shelf.ledger().records() if r.attempt.outcome]
    assert answers == [large, large]


@pytest.mark.parametrize("text", ["", "\x00", "\N{BYTE ORDER MARK}", '"\\\n\r\t', "\u2028"])
def test_odd_text_comes_back_as_it_was(shelf: Shelf, text: str) -> None:
    given = plan(task())
    (only,) = given
    keep(shelf, given, (only, attempt(answer=text)))
    (record,) = shelf.ledger().records()
    assert record.attempt == attempt(answer=text)


def test_a_lone_surrogate_is_replaced_and_breaks_nothing(tmp_path: Path) -> None:
    shelf, given = SqliteShelf(tmp_path / "run"), plan(task())
    (only,) = given
    keep(shelf, given, (only, attempt(answer="half \ud83c of a pizza")))
    (record,) = shelf.ledger().records()
    assert record.attempt.outcome is not None
    assert record.attempt.outcome.answer == "half \ufffd of a pizza"


def test_many_appends_at_once_are_all_kept_once(shelf: Shelf) -> None:
    given = plan(*tasks(100), rollouts=2)

    async def session() -> None:
        store = shelf.open()
        store.freeze(given)
        async with asyncio.TaskGroup() as group:
            for trial in given:
                group.create_task(store.append(trial, attempt()))
        await store.close()

    asyncio.run(session())
    names = [r.name for r in shelf.ledger().records()]
    assert len(names) == len(set(names)) == 200
    assert due(shelf, given) == [None] * 200


def test_what_an_append_that_was_cancelled_wrote_is_whole_or_not_there(shelf: Shelf) -> None:
    given = plan(*tasks(20))

    async def session() -> None:
        store = shelf.open()
        store.freeze(given)
        work = [asyncio.create_task(store.append(trial, attempt())) for trial in given]
        await asyncio.sleep(0)
        for one in work[::2]:
            one.cancel()
        await asyncio.wait(work)
        await store.close()

    asyncio.run(session())
    kept = {r.name for r in shelf.ledger().records()}
    assert kept >= {trial.name for trial in list(given)[1::2]}
    assert [number is None for number in due(shelf, given)] == [t.name in kept for t in given]


def test_what_cannot_be_written_is_told_to_everybody_who_waits(tmp_path: Path) -> None:
    shelf, given = SqliteShelf(tmp_path / "run"), plan(*tasks(2))
    absurd = replace(attempt().spent.usage, input_tokens=10**30)
    bad = replace(attempt(), spent=replace(attempt().spent, usage=absurd))

    async def session() -> list[BaseException | None]:
        store = shelf.open()
        store.freeze(given)
        work = [asyncio.create_task(store.append(trial, bad)) for trial in given]
        await asyncio.wait(work, timeout=5)
        await store.close()
        return [one.exception() if one.done() else None for one in work]

    errors = asyncio.run(session())
    assert [isinstance(error, Exception) for error in errors] == [True, True]
    assert due(shelf, given) == [1, 1]


def test_what_an_agent_leaves_beside_its_answer_is_kept_or_shown_as_text(shelf: Shelf) -> None:
    given = plan(task())
    (only,) = given
    plain = attempt()
    assert plain.outcome is not None
    notes = {"path": Path("/tmp"), "many": {1}}
    odd = replace(plain, outcome=replace(plain.outcome, notes=notes))  # type: ignore[arg-type]
    keep(shelf, given, (only, odd))
    (record,) = shelf.ledger().records()
    assert record.attempt.outcome is not None
    assert "/tmp" in str(record.attempt.outcome.notes["path"])


def test_the_ledger_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    shelf, given = SqliteShelf(tmp_path / "run"), plan(*tasks(10))

    async def session() -> list[int]:
        store, seen = shelf.open(), []
        store.freeze(given)
        for trial in given:
            await store.append(trial, attempt())
            seen.append(sum(1 for _ in shelf.ledger().records()))
        await store.close()
        return seen

    assert asyncio.run(session()) == list(range(1, 11))


def test_the_database_itself_refuses_a_second_attempt_that_counts(tmp_path: Path) -> None:
    shelf, given = SqliteShelf(tmp_path / "run"), plan(task())
    (only,) = given
    keep(shelf, given, (only, attempt()))
    with closing(sqlite3.connect(shelf.folder / "ledger.sqlite")) as db:
        columns = [name for (_, name, *_) in db.execute("PRAGMA table_info(attempt)")]
        chosen = ", ".join("2" if name == "number" else name for name in columns)
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(f"INSERT INTO attempt SELECT {chosen} FROM attempt")


def test_messages_with_reasoning_come_back(shelf: Shelf) -> None:
    given = plan(task())
    (only,) = given
    plain = attempt()
    assert plain.outcome is not None
    said = (Message(role="assistant", content="four", reasoning="two and two"),)
    thoughtful = replace(plain, outcome=replace(plain.outcome, transcript=said))
    keep(shelf, given, (only, thoughtful))
    (record,) = shelf.ledger().records()
    assert record.attempt == thoughtful


def test_every_attempt_ever_made_is_on_the_bill_also_those_that_count_no_more(
    shelf: Shelf,
) -> None:
    given = plan(task("a"), task("b"))
    first, second = given
    broken = replace(
        attempt(1, status=Status.FAULTED), bill=Bill(unsure_usd=0.5, unsure_tokens=7, unpriced=1)
    )
    right = replace(attempt(2), bill=Bill(cost_usd=0.25, tokens=10))
    keep(shelf, given, (first, broken), (first, right), (second, attempt(1)))
    keep(shelf, plan(task("b")))  # what is planned no more was billed all the same
    assert shelf.ledger().billed() == Bill(
        cost_usd=0.25, tokens=10, unsure_usd=0.5, unsure_tokens=7, unpriced=1
    )
    assert shelf.ledger().attempts("b")[0].attempt.bill == Bill()


def test_an_outline_says_of_a_task_what_statistics_need(shelf: Shelf) -> None:
    judged = ScorerSpec(name="rubrics", settings={"test_scripts": ["a.sh"]}, weight=0.5)
    known = [
        task("plain"),
        *(replace(t, scorers=(_includes(number),)) for number, t in enumerate(tasks(2))),
        task("lenient", scorers=(_includes(9),), pass_threshold=0.5, category="c", group="g"),
        task("judged", scorers=(judged, ScorerSpec(name="label", weight=0.0))),
        task("unweighted", scorers=(ScorerSpec(name="label", weight=0.0),)),
        task("broken", trouble="no such file"),
        task("coding", scorers=(judged,), workspace=Workspace(root="/src")),
    ]
    keep(shelf, plan(*known))
    (block,) = shelf.ledger().planned().blocks
    found = list(outlines_of(block.tasks))
    assert [(o.id, o.category, o.group) for o in found] == [
        (t.id, t.category, t.group) for t in known
    ]
    for outline, whole in zip(found, known, strict=True):
        sample = outline.sample
        assert is_checked(sample) == is_checked(whole)
        assert rule_of(sample) == rule_of(whole)
        assert sample.scorers == whole.scorers
        assert sample.workspace == whole.workspace
    if isinstance(block.tasks, LazyTasks):  # where they were written makes no difference
        assert found[1].sample is found[2].sample is not found[3].sample


def _includes(number: int) -> ScorerSpec:
    return ScorerSpec(name="includes", origin=SourceLocation(file="s.json", key=("tests", number)))


def test_tasks_that_are_read_as_needed_can_be_changed_as_they_are_read(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path / "run", most_held=0)
    given = plan(*tasks(3))
    keep(shelf, given)
    (stored,) = shelf.ledger().planned().blocks
    renamed = mapped(lambda known: replace(known, name=known.id.upper()), stored.tasks)
    assert [known.name for known in renamed] == ["T0000", "T0001", "T0002"]
    assert [known.name for known in stored.tasks] == [None, None, None]
    assert mapped(lambda known: known, given.blocks[0].tasks) == given.blocks[0].tasks
    # changed ones are not taken for what is stored: they are written
    keep(shelf, replace(given, blocks=(replace(stored, tasks=renamed),)))
    assert [known.name for known in shelf.ledger().planned().tasks] == ["T0000", "T0001", "T0002"]
