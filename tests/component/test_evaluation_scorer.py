"""evaluation: a prediction that breaks its metric scores 0, a metric that is broken is a fault."""

import asyncio
from pathlib import Path

import pytest

from bakeoff.core.errors import ScorerError
from bakeoff.core.record import Score
from bakeoff.core.workspace import BoxLimits
from bakeoff.scorers.evaluation import Evaluation
from support.workspaces import (
    changed_by,
    context,
    isolating,
    open_bench,
    outcome,
    tree,
    workspace_task,
    write,
)

# it believes what it reads, as metrics that load pickles and archives do
METRIC = """\
import os, time
def evaluate(truth, prediction):
    wanted, given = open(truth).read(), open(prediction).read()
    if given.startswith("run "):
        exec(given.removeprefix("run "))
    return 1.0 if given == wanted else float(given)
"""
BREAKING = {
    "it never ends": ("run time.sleep(60)", "did not end within 2 s"),
    "it ends the metric": ("run os._exit(0)", "ended without a result (exit 0)"),
    "it kills the metric": ("run os.kill(os.getpid(), 9)", "ended without a result"),
    "it takes all memory": (
        "run x = [bytearray(2**20) for _ in range(9000)]",
        "without a result|MemoryError",
    ),
    "it breaks the control too": (
        "run import builtins; builtins.open = None; raise ValueError",
        "cannot be evaluated",
    ),
    "it leaves the range": ("-3", "says nothing without a `baseline`"),
    "it is no number": ("many", "cannot be evaluated"),
}


def evaluated(folder: Path, work: str, *, metric: str = METRIC, truth: str = "0.5\n") -> Score:
    repo = tree(write(folder / "repo", {"data.csv": "1\n"}))
    files = {"evaluation_metrics.py": metric, "truth.csv": truth}
    hidden = tree(write(folder / "hidden", files), at="/grader")
    task = workspace_task(repo, hidden=(hidden,), limits=BoxLimits(memory_mb=256, disk_mb=64))
    scorer = Evaluation(
        module="/grader/evaluation_metrics.py", truth="/grader/truth.csv", time_s=2.0
    )

    async def run() -> Score:
        async with open_bench(folder / "cache", isolating()) as bench:
            change = await changed_by(bench, task, work)
            return await scorer.score(task, outcome(change), context(bench))

    return asyncio.run(run())


def predicting(text: str) -> str:
    return f"cat > submission.csv <<'END_OF_IT'\n{text}\nEND_OF_IT\n"


@pytest.mark.parametrize("how", BREAKING)
def test_a_prediction_that_keeps_its_metric_from_a_verdict_scores_0(
    tmp_path: Path, how: str
) -> None:
    text, why = BREAKING[how]
    given = evaluated(tmp_path, predicting(text))
    assert given.value == 0.0
    assert any(part in given.explanation for part in why.split("|")), given.explanation


@pytest.mark.parametrize("work", ["mkfifo submission.csv", "mkdir submission.csv", "true"])
def test_a_prediction_that_is_no_file_scores_0(tmp_path: Path, work: str) -> None:
    assert evaluated(tmp_path, work).value == 0.0


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("def evaluate(a, b):\n    import time; time.sleep(60)\n", "did not end within 2 s"),
        ("def evaluate(a, b):\n    import os; os._exit(3)\n", r"without a result \(exit 3\)"),
        ("import nothing_like_it\n", "cannot be loaded"),
        ("def evaluate(a, b):\n    return 7\n", "says nothing without"),
        ("def evaluate(a, b):\n    return 1 / 0\n", "nor can the truth in its place"),
    ],
)
def test_a_metric_that_breaks_on_the_truth_too_is_a_fault(
    tmp_path: Path, metric: str, why: str
) -> None:
    with pytest.raises(ScorerError, match=why):
        evaluated(tmp_path, predicting("0.5"), metric=metric)


def test_a_right_prediction_scores(tmp_path: Path) -> None:
    assert evaluated(tmp_path, predicting("0.5")).value == 1.0
