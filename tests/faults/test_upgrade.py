"""A run that was begun in an older ledger format: upgraded whole, or not at all."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import bakeoff
from bakeoff import UsageError
from bakeoff.core.record import TrialRecord
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore
from bakeoff.stores.schema import VERSION, row_crc

GOLDEN = Path(__file__).parents[1] / "golden"
TRIALS = 2000
_UPGRADE = """
import sys
from pathlib import Path
from bakeoff.stores.ledger_writer import SqliteStore
print("ready", flush=True)
sys.stdin.readline()
SqliteStore(Path(sys.argv[1]))
"""


def version_of(folder: Path) -> int:
    with closing(sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def records(folder: Path) -> dict[str, TrialRecord]:
    return {record.name: record for record in SqliteLedger(folder).records()}


def is_sound(folder: Path) -> bool:
    """Whether every checksum of the ledger is right; its seal is not believed."""
    (folder / "ledger.sqlite.crc").unlink(missing_ok=True)
    return not SqliteLedger(folder).damage().lines


def upgrade(folder: Path) -> None:
    async def open_and_close() -> None:
        await SqliteStore(folder).close()

    asyncio.run(open_and_close())


@pytest.fixture(params=["ledger_1", "ledger_1_with_checksums"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "runs" / "old"))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """An old run with so many attempts that its upgrade takes a while."""
    folder = Path(shutil.copytree(GOLDEN / "ledger_1_with_checksums", tmp_path / "runs" / "large"))
    (folder / "ledger.sqlite.crc").unlink()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(attempt)")]
        (first,) = db.execute("SELECT * FROM attempt WHERE status = 'completed' LIMIT 1").fetchall()
        values = dict(zip(columns, first, strict=True))
        for number in range(2, TRIALS):
            row = tuple({**values, "rollout": number, "superseded": 0}.values())
            crc = row_crc(*row[:4], *row[5:26])
            db.execute(f"INSERT INTO attempt VALUES ({', '.join('?' * 27)})", (*row[:26], crc))
        db.execute("UPDATE block SET rollouts = ?", (TRIALS,))
        db.execute("DELETE FROM meta WHERE key = 'plan_crc'")
        db.commit()
    return folder


def test_an_old_run_says_the_same_before_and_after_its_upgrade(old: Path) -> None:
    before, plan = records(old), SqliteLedger(old).planned()
    rows, billed = list(SqliteLedger(old).rows()), SqliteLedger(old).billed()
    everything = [list(SqliteLedger(old).attempts(name)) for name in before]
    assert version_of(old) == 1, "reading changes nothing"
    upgrade(old)
    assert version_of(old) == VERSION
    assert records(old) == before
    assert SqliteLedger(old).planned() == plan
    assert SqliteLedger(old).planned().digest == plan.digest
    assert list(SqliteLedger(old).rows()) == rows
    assert SqliteLedger(old).billed() == billed
    assert [list(SqliteLedger(old).attempts(name)) for name in before] == everything
    assert is_sound(old)
    assert not list(old.glob("*.upgrading*"))


def test_an_old_run_with_damage_is_mended_and_upgraded(tmp_path: Path) -> None:
    old = Path(shutil.copytree(GOLDEN / "ledger_1_with_checksums", tmp_path / "runs" / "old"))
    ledger = old / "ledger.sqlite"
    before = records(old)
    data = bytearray(ledger.read_bytes())
    data[data.index(b'"answer":"Paris, of course."') + 12] ^= 1
    ledger.write_bytes(data)
    (damaged,) = SqliteLedger(old).damage().trials
    assert damaged.startswith("capital@scripted/steady#")
    upgrade(old)
    assert version_of(old) == VERSION
    assert records(old) == {name: record for name, record in before.items() if name != damaged}
    again = bakeoff.run(resume=str(old))
    assert records(again.folder)[damaged].attempt.passed


@pytest.mark.parametrize("share", [0.05, 0.4, 0.7, 0.95])
def test_an_upgrade_that_is_killed_leaves_the_old_ledger_or_the_new_one(
    large: Path, tmp_path: Path, share: float
) -> None:
    before = len(records(large))
    whole = Path(shutil.copytree(large, tmp_path / "runs" / "whole"))
    took_s = killed_after(whole, None)
    killed_after(large, took_s * share)
    assert version_of(large) in {1, VERSION}
    assert len(records(large)) == before
    assert is_sound(large)
    upgrade(large)
    assert version_of(large) == VERSION
    assert len(records(large)) == before
    assert records(large) == records(whole)
    assert not list(large.glob("*.upgrading*"))


def killed_after(folder: Path, wait_s: float | None) -> float:
    """Upgrade in a process of its own, killed after *wait_s* where that is given; return its time."""
    words = [sys.executable, "-c", _UPGRADE, str(folder)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
        if wait_s is not None:
            time.sleep(wait_s)
            process.kill()
        process.wait(60)
        return time.monotonic() - began


def test_a_run_that_somebody_reads_is_upgraded_once_they_are_done(old: Path) -> None:
    with closing(sqlite3.connect(old / "ledger.sqlite", isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = WAL")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM attempt").fetchone()
        with pytest.raises(UsageError, match="another process reads it"):
            upgrade(old)
        assert version_of(old) == 1
        reader.execute("COMMIT")
    upgrade(old)
    assert version_of(old) == VERSION


def test_a_format_of_the_future_is_refused_with_its_number(old: Path) -> None:
    (old / "ledger.sqlite.crc").unlink(missing_ok=True)
    with closing(sqlite3.connect(old / "ledger.sqlite")) as db:
        db.execute("PRAGMA user_version = 9")
    with pytest.raises(UsageError, match="ledger format 9; this version of bakeoff reads 1 to 2"):
        bakeoff.load_run(old).summary()
    with pytest.raises(UsageError, match="ledger format 9"):
        upgrade(old)
    assert json.loads((old / "manifest.json").read_text())["name"] == "golden"
