"""A merge that is killed leaves no run, and one that is not holds little in memory."""

import json
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import bakeoff
from bakeoff.app.inspection import check_run
from bakeoff.stores.folders import list_runs
from support.cli import BAKEOFF, Running, started, until
from support.plans import write_suite
from support.shards import assert_same_run, run_shards

ECHO = "scripted/echo"


def unfinished(output: Path) -> list[Path]:
    return list(output.glob(".merging-*"))


def has_begun(merging: Running, output: Path, before: set[str]) -> bool:
    """Whether the merge has a folder of its own, or is over."""
    begun = {path.name for path in unfinished(output)} - before
    return bool(begun) or merging.process.poll() is not None


def test_a_merge_that_is_killed_at_any_moment_leaves_no_run(tmp_path: Path) -> None:
    suite, output = write_suite(tmp_path / "suite.json", 50), tmp_path / "merged"
    parts = run_shards(suite, 2, tmp_path / "parts", models=[ECHO], rollouts=60)
    folders = [str(run.folder) for run in parts]
    words = ["merge", *folders, "--output", str(output)]
    chance, hits = random.Random(7), 0
    for _ in range(6):
        with started([*BAKEOFF, *words], folder=tmp_path / "io") as merging:
            until(partial(has_begun, merging, output, {path.name for path in unfinished(output)}))
            hits += merging.kill_after(chance.uniform(0.0, 0.15))
        for entry in list_runs(output):  # only what was finished before the kill
            assert not check_run(bakeoff.load_run(entry.folder)).lines
            assert bakeoff.load_run(entry.folder).summary().buckets.scored == 3000
        assert all((path / "merged").is_dir() or not list(path.iterdir()) for path in unfinished(output))  # fmt: skip
    assert hits >= 3
    merged = bakeoff.merge(parts, output=output)
    assert unfinished(output) == []  # those of dead processes are removed
    assert_same_run(merged, bakeoff.run(suite, models=[ECHO], rollouts=60, output=tmp_path / "one"))


_MERGE = """
import resource, sys
import bakeoff.app.merging
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
merged = bakeoff.app.merging.merge(sys.argv[2:], output=sys.argv[1])
print(merged.manifest.planned, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_what_a_merge_holds_does_not_grow_with_the_trials(tmp_path: Path) -> None:
    chance, grown, size = random.Random(3), {}, 0.0
    tests = [
        {"id": f"t{n}", "prompt": f"{chance.randbytes(3000).hex()}"} for n in range(20)
    ]  # an answer is 6 kB that cannot be compressed to less than 3
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"tests": tests}))
    for rollouts in (10, 400):
        output = tmp_path / str(rollouts)
        parts = run_shards(suite, 2, output / "parts", models=[ECHO], rollouts=rollouts)
        size = sum((run.folder / "ledger.sqlite").stat().st_size for run in parts) / 1e6
        words = [sys.executable, "-c", _MERGE, str(output), *(str(run.folder) for run in parts)]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert int(told[0]) == 20 * rollouts
        grown[rollouts] = int(told[1]) / 1000 * (1 if sys.platform == "linux" else 1e-3)
    assert size > 20  # MB: what is read and written the second time
    assert grown[400] - grown[10] < 8, grown
