"""A run whose files were damaged: found, named, and everything else still read."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

import bakeoff
from bakeoff import Message, Request, ScorerSpec, Task, UsageError
from bakeoff.app import rescore
from bakeoff.cli import call
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import Manifest
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore
from support.plans import attempt, plan, tasks

LARGE = "t05"
TASKS = [
    Task(
        id=f"t{number:02}",
        category=f"c{number % 3}",
        messages=(Message(role="user", content=f"say number {number:02}"),),
        target=f"number {number:02}",
        scorers=(ScorerSpec(name="includes"),),
    )
    for number in range(12)
]


def one(request: Request) -> str:
    text = request.messages[-1].content
    return f"{text} {padding(text, 150)}"


def padding(seed: object, size: int) -> str:
    """Text that does not compress: so most of a page is in use, and a bit in it matters."""
    return random.Random(str(seed)).randbytes(size).hex()


def two(request: Request) -> str:
    text = request.messages[-1].content
    return "no idea" if text.endswith(("3", "7")) else text + padding(text, 900)


def large(request: Request) -> str:
    """Echo; one answer is too large for a row, and does not compress."""
    text = request.messages[-1].content
    return text + random.Random(1).randbytes(300_000).hex() if LARGE[1:] in text else text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with records in rows and in overflow pages."""
    output = tmp_path_factory.mktemp("whole")
    return bakeoff.run(TASKS, models=[one, two], rollouts=2, output=output).folder


@pytest.fixture
def with_blob(tmp_path: Path) -> Path:
    """A finished run with one record in a file of its own."""
    return bakeoff.run(TASKS, models=[large], output=tmp_path / "large").folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "runs" / whole.name))


@dataclass(frozen=True)
class Contents:
    """All that a report could be made from."""

    plan: str
    rows: dict[str, object]
    records: dict[str, object]
    billed: object


def contents(ledger: SqliteLedger) -> Contents:
    rows = {(r.task_id, r.candidate_id, r.rollout): r for r in ledger.rows()}
    return Contents(
        plan=ledger.planned().digest,
        rows={f"{task}@{who}#{rollout}": row for (task, who, rollout), row in rows.items()},
        records={record.name: record for record in ledger.records()},
        billed=ledger.billed(),
    )


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def flip_in(folder: Path, query: str) -> None:
    """Flip a bit in the middle of the stored bytes that *query* returns."""
    ledger = folder / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        (stored,) = db.execute(query).fetchone()
    head = stored[:60]  # of more, the rest may be in another page
    flip(ledger, (ledger.read_bytes().index(head) + len(head) // 2) * 8)


def record_of(task: str) -> str:
    """The query for what is stored of a task's first trial with the first candidate."""
    return (
        "SELECT rest FROM attempt WHERE candidate = 1 AND rollout = 0"
        f" AND task = (SELECT row FROM task WHERE id = '{task}')"
    )


def body_of(task: str) -> str:
    """The query for the chunk that holds a task."""
    return f"SELECT bodies FROM task_chunk WHERE first = (SELECT row FROM task WHERE id = '{task}')"


def judged(folder: Path, right: Contents) -> str:
    """Return what became of a damaged run: `harmless` or `detected`; fail where it lies."""
    ledger = SqliteLedger(folder)
    found = contents(ledger)
    damage = ledger.damage()
    if found == right:
        return "detected" if damage.lines else "harmless"
    assert damage.lines, "something is different, and nothing is said"
    assert set(found.rows) == set(found.records)
    for name, row in found.rows.items():
        assert (row, found.records[name]) == (right.rows[name], right.records[name])
    missing = set(right.rows) - set(found.rows)
    assert len(missing) <= 12, f"one bit took {len(missing)} of {len(right.rows)} trials"
    assert missing <= set(damage.trials) or not damage.whole or "missing" in damage.lines[0]
    return "detected"


def bits(path: Path, *, header: int, elsewhere: int) -> Iterator[int]:
    """Yield bits of the file's first page and of the rest, at random."""
    size = path.stat().st_size
    drawn = random.Random(33)
    yield from (drawn.randrange(100 * 8) for _ in range(header))
    yield from (drawn.randrange(size * 8) for _ in range(elsewhere))


def flip_and_judge(whole: Path, folder: Path, *, header: int, elsewhere: int) -> dict[str, int]:
    right = contents(SqliteLedger(whole))
    ledger, counts = folder / "ledger.sqlite", {"harmless": 0, "detected": 0, "refused": 0}
    for bit in bits(ledger, header=header, elsewhere=elsewhere):
        flip(ledger, bit)
        try:
            counts[judged(folder, right)] += 1
        except UsageError as error:
            counts["refused"] += 1
            assert "ledger format" in str(error) or "is empty" in str(error), error  # noqa: PT017
        except Exception as error:
            raise AssertionError(f"bit {bit} (byte {bit // 8})") from error
        flip(ledger, bit)
    assert judged(folder, right) == "harmless"
    return counts


def test_every_flipped_bit_is_detected_or_harmless(whole: Path, folder: Path) -> None:
    counts = flip_and_judge(whole, folder, header=30, elsewhere=100)
    assert counts["detected"] > 40, counts
    assert counts["refused"] == 0


def test_so_it_is_in_a_run_that_was_killed(whole: Path, folder: Path) -> None:
    (folder / "ledger.sqlite.crc").unlink()
    counts = flip_and_judge(whole, folder, header=10, elsewhere=60)
    assert counts["detected"] > 20, counts


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_thousands_of_flipped_bits_are_detected_or_harmless(whole: Path, folder: Path) -> None:
    flip_and_judge(whole, folder, header=800, elsewhere=4000)
    (folder / "ledger.sqlite.crc").unlink()
    flip_and_judge(whole, folder, header=800, elsewhere=4000)


# --- other damage


@pytest.mark.parametrize("share", [0.8, 0.999])
def test_what_is_left_of_a_ledger_that_was_cut_off_is_read(
    whole: Path, folder: Path, share: float
) -> None:
    right = contents(SqliteLedger(whole))
    ledger = folder / "ledger.sqlite"
    size = ledger.stat().st_size
    with ledger.open("r+b") as file:
        file.truncate(int(size * share))
    found = SqliteLedger(folder)
    rows = contents(found).rows
    assert all(row == right.rows[name] for name, row in rows.items())
    (first, *_) = found.damage().lines
    assert f"its last {size - int(size * share):,} bytes are missing" in first
    if share > 0.9:
        assert len(rows) >= len(right.rows) - 12
    summary = bakeoff.load_run(folder).summary()
    assert first in summary.notes
    assert summary.buckets.scored == len(rows)


def test_a_damaged_trial_is_named_and_a_resume_runs_just_that_one_again(folder: Path) -> None:
    before = bakeoff.load_run(folder).summary()
    flip_in(folder, record_of("t04"))
    damaged = bakeoff.load_run(folder)
    (name,) = damaged.damage().trials
    assert name.startswith("t04@one#")
    summary = damaged.summary()
    assert (summary.buckets.scored, summary.buckets.not_run) == (47, 1)
    assert any(name in note for note in summary.notes)
    asked: list[str] = []

    def counting(request: Request) -> str:
        asked.append(request.messages[-1].content)
        return one(request)

    counting.__module__, counting.__qualname__ = one.__module__, one.__qualname__
    heard: list[str] = []

    def listen(event: object) -> None:
        heard.append(getattr(event, "text", ""))

    again = bakeoff.run(
        TASKS, models=[counting, two], rollouts=2, resume=str(folder), listener=listen
    )
    assert asked == ["say number 04"]
    assert any(name in text for text in heard)
    assert not again.damage().lines
    assert again.summary().buckets == before.buckets
    assert (folder / "ledger.sqlite.damaged-1").is_file()


def test_a_missing_blob_costs_its_trial_and_nothing_else(with_blob: Path) -> None:
    (blob,) = (with_blob / "blobs").iterdir()
    blob.unlink()
    run = bakeoff.load_run(with_blob)
    assert len(list(run.trials())) == len(list(run.rows())) == 11
    assert run.damage().trials == (f"{LARGE}@large#0",)
    assert any(LARGE in note for note in run.summary().notes)
    assert (with_blob / "report.html").name in {p.name for p in bakeoff.report(run)}
    assert rescore(run).summary().buckets.scored == 11
    assert call(["show", str(with_blob)]) == 0
    again = bakeoff.run(TASKS, models=[large], resume=str(with_blob))
    assert again.summary().buckets.scored == 12
    assert len(list(again.trials())) == 12


def test_a_blob_that_is_not_what_it_was_is_run_again(with_blob: Path) -> None:
    (blob,) = (with_blob / "blobs").iterdir()
    flip(blob, 8000)
    run = bakeoff.load_run(with_blob)
    assert len(list(run.trials())) == 11
    assert f"{LARGE}@large#0" in run.damage().lines[0]
    again = bakeoff.run(TASKS, models=[large], resume=str(with_blob))
    assert len(list(again.trials())) == 12


@pytest.mark.parametrize("garbled", [b"", b"{", b"\xff\x00", b'{"run": "x"}', None])
def test_a_damaged_manifest_stops_nothing(folder: Path, garbled: bytes | None) -> None:
    manifest = folder / "manifest.json"
    before = bakeoff.load_run(folder).manifest
    manifest.unlink() if garbled is None else manifest.write_bytes(garbled)
    run = bakeoff.load_run(folder)
    assert run.manifest == before
    assert run.summary().buckets.scored == 48
    assert call(["show", str(folder)]) == 0
    again = bakeoff.run(TASKS, models=[one, two], rollouts=2, resume=str(folder))
    assert again.manifest.created_at == before.created_at


def test_a_manifest_that_was_changed_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["check", str(folder)]) == 0
    assert "everything is as it was written: 48 records" in capsys.readouterr().out
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"planned": 48', '"planned": 49'))
    assert call(["check", str(folder)]) == 1
    assert "manifest.json is not what the run wrote" in capsys.readouterr().out


def test_check_names_what_is_damaged(
    folder: Path, with_blob: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_in(folder, record_of("t09"))
    assert call(["check", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "t09@one#" in out
    assert f"bakeoff run --resume {folder}" in out
    (blob,) = (with_blob / "blobs").iterdir()
    flip(blob, 8000)
    assert call(["check", str(with_blob), "--json"]) == 1
    assert f"{LARGE}@large#0" in capsys.readouterr().out


def test_one_bad_run_does_not_hide_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in (("garbage", b"not a database " * 999), ("nothing", b"")):
        bad = Path(shutil.copytree(folder, folder.with_name(name)))
        (bad / "ledger.sqlite").write_bytes(data)
        (bad / "manifest.json").write_bytes(b"{")
    assert call(["list", "runs", "--output", str(folder.parent)]) == 0
    out = capsys.readouterr().out
    assert folder.name in out
    assert "garbage" in out
    assert bakeoff.load_run("latest", output=folder.parent).id == folder.name
    for name in ("garbage", "nothing"):
        assert call(["show", name, "--output", str(folder.parent)]) == 1
        assert "Traceback" not in capsys.readouterr().err


def test_a_damaged_task_is_restored_from_the_source(folder: Path) -> None:
    flip_in(folder, body_of("t08"))
    run = bakeoff.load_run(folder)
    assert not run.damage().whole
    assert len(list(run.trials())) == 44
    with pytest.raises(UsageError, match="task 't08' is damaged"):
        bakeoff.run(resume=str(folder))
    with pytest.raises(UsageError, match="task 't08' is damaged"):
        rescore(run)
    events: list[bakeoff.Event] = []
    again = bakeoff.run(
        TASKS, models=[one, two], rollouts=2, resume=str(folder), listener=events.append
    )
    assert not any(isinstance(event, bakeoff.TrialStarted) for event in events)
    assert len(list(again.trials())) == 48
    assert again.summary().buckets.scored == 48
    assert not again.damage().lines


# --- a run that was killed keeps its last records in SQLite's log


def manifest_of(given: Plan) -> Manifest:
    """What every run keeps a copy of, so that a candidate is known twice."""
    return Manifest(
        run="dead",
        name="dead",
        created_at="",
        bakeoff="",
        python="",
        platform="",
        planned=len(given),
        tasks=given.task_count,
        plan=given.digest,
        candidates=tuple(given.candidates),
        conditions=given.conditions,
    )


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The files of a run as a kill leaves them: nothing has been moved out of the log yet."""
    given, dead = plan(*tasks(30), rollouts=2), tmp_path / "dead"

    async def write() -> None:
        store = SqliteStore(tmp_path / "live")
        store.freeze(given)
        store.keep_manifest(manifest_of(given))
        async with asyncio.TaskGroup() as group:
            for trial in given:
                group.create_task(store.append(trial, attempt(answer="so it is " * 100)))
        dead.mkdir()
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            shutil.copy(tmp_path / "live" / name, dead / name)
        await store.close()

    asyncio.run(write())
    return dead


def test_a_damaged_log_hides_no_record(killed: Path, tmp_path: Path) -> None:
    right = contents(SqliteLedger(Path(shutil.copytree(killed, tmp_path / "right"))))
    assert len(right.rows) == 60
    drawn = random.Random(34)
    size = (killed / "ledger.sqlite-wal").stat().st_size
    for number in range(60):
        folder = Path(shutil.copytree(killed, tmp_path / f"{number}"))
        bit = drawn.randrange(size * 8)
        flip(folder / "ledger.sqlite-wal", bit)
        ledger = SqliteLedger(folder)
        found = contents(ledger)
        assert ledger.damage().lines, f"bit {bit}"
        assert len(found.rows) >= 56, f"bit {bit}"
        assert all(row == right.rows[name] for name, row in found.rows.items()), f"bit {bit}"


def test_a_log_that_ends_in_the_middle_of_a_page_is_no_damage(killed: Path) -> None:
    log = killed / "ledger.sqlite-wal"
    with log.open("ab") as file:
        file.write(b"\x00" * 1000)  # what a kill leaves of a group that nobody was told of
    ledger = SqliteLedger(killed)
    assert len(contents(ledger).rows) == 60
    assert not ledger.damage().lines
