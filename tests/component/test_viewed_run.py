"""What the viewer keeps of a run, and what it asks of its ledger."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from bakeoff.app import load_run
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, TrialFilter
from bakeoff.reports.files import write_summary
from bakeoff.stats.between_runs import run_scores, scores_of_totals
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore
from bakeoff.stores.queries import LedgerQueries, TrialQuery
from bakeoff.web.runs import ViewedRun
from support.plans import attempt
from support.reports import write_run
from support.viewed_runs import mostly, squares


def first_half(trial: Trial) -> Attempt | None:
    return mostly(trial) if trial.rollout == 0 else None


def append_rest(folder: Path) -> None:
    async def rest() -> None:
        store = SqliteStore(folder)
        store.freeze(squares())
        try:
            for trial in squares():
                if trial.rollout == 1:
                    await store.append(trial, mostly(trial))
        finally:
            await store.close()

    asyncio.run(rest())


def test_what_was_computed_is_kept_until_the_ledger_changes(tmp_path: Path) -> None:
    run = ViewedRun(write_run(tmp_path / "r1", squares(), first_half))
    made: list[int] = []
    for _ in range(3):
        run.kept("x", lambda: made.append(1))
    assert len(made) == 1
    before = run.summary()
    append_rest(run.folder)
    run.kept("x", lambda: made.append(1))
    assert len(made) == 2
    after = ViewedRun(run.folder).summary()
    assert (before.buckets.scored, after.buckets.scored) == (23, 46)


def test_the_summary_that_a_run_wrote_is_taken_only_if_it_is_of_its_ledger(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r1", squares(), first_half)
    real = load_run(folder).summary()
    marked = replace(real, notes=("it was written",))
    write_summary(folder, marked)
    assert ViewedRun(folder).summary() == marked
    os.utime(folder / "ledger.sqlite")  # as if trials had been recorded since
    os.utime(folder / "summary.json", (0, 0))
    assert ViewedRun(folder).summary() == real
    (folder / "summary.json").write_text("{")
    assert ViewedRun(folder).summary() == real


def test_pages_of_trials_are_those_that_are_asked_for_in_the_order_of_the_plan(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "r1", squares(), mostly)
    queries = LedgerQueries(SqliteLedger(folder))
    every = queries.trials(TrialQuery(), limit=100)
    assert [one.name for one in every] == [trial.name for trial in squares()]
    assert queries.count(TrialQuery()) == queries.ended() == 48
    for which in (
        TrialQuery(candidate="bad", result="failed"), TrialQuery(category="odd", status="faulted"),
        TrialQuery(task="T00"), TrialQuery(fault="provider"), TrialQuery(result="unscored"),
        TrialQuery(candidate="nobody"), TrialQuery(task="%"),
    ):  # fmt: skip
        found = queries.trials(which, limit=100)
        assert len(found) == queries.count(which)
        keys = [None, *(one.key for one in found)]
        paged = [queries.trials(which, limit=1, after=key) for key in keys]
        assert [one.name for page in paged for one in page] == [one.name for one in found]
        names = [one.name for one in found]
        for place, one in enumerate(found):
            before, after = queries.beside(which, one.key)
            assert (before.name if before else None) == (names[place - 1] if place else None)
            assert (after.name if after else None) == (
                names[place + 1] if place + 1 < len(names) else None
            )
    assert queries.count(TrialQuery(candidate="bad", result="failed")) == 20
    assert queries.count(TrialQuery(task="%")) == 0, "a text is no pattern"


def test_progress_and_matrix_say_what_the_summary_says(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r1", squares(), mostly)
    queries, summary = LedgerQueries(SqliteLedger(folder)), load_run(folder).summary()
    for one, known in zip(queries.progress(), summary.candidates, strict=True):
        assert one.candidate == known.candidate
        assert one.mean_score == known.total.score.mean
        assert (one.passed, one.ended) == (known.total.passed, known.total.buckets.ran)
    rows, many = queries.matrix(limit=5)
    assert (len(rows), many) == (5, 12)
    assert [row.spread for row in rows] == [1.0] * 5
    differing, some = queries.matrix(limit=100, only_differing=True)
    assert some == len(differing) == 11, "on t003 only one of them has a score"
    assert queries.faults() == [("bad", "provider", 2)]


def test_each_trial_is_in_one_bin_of_a_distribution(tmp_path: Path) -> None:
    def slow(trial: Trial) -> Attempt:
        ended = attempt()
        wait_s = 100.0 if trial.task.id == "t000" else 1.0
        return replace(ended, spent=replace(ended.spent, model_s=wait_s, requests=1))

    queries = LedgerQueries(SqliteLedger(write_run(tmp_path / "r1", squares(), slow)))
    width, counts = queries.distribution("model_s", bins=10)
    assert width > 0
    assert {name: sum(bins) for name, bins in counts.items()} == {"good": 24, "bad": 24}
    assert counts["good"][-1] == 2, "the last bin is open"
    assert queries.distribution("first_token_s")[1].keys() <= {"good", "bad"}


def test_trials_that_the_ledger_adds_up_are_those_of_its_rows(tmp_path: Path) -> None:
    golden = [Path(__file__).parents[1] / "golden" / name for name in ("ledger_1", "ledger_2")]
    for folder in (write_run(tmp_path / "r1", squares(), mostly), *golden):
        ledger = SqliteLedger(folder)
        added, counted = scores_of_totals(ledger.totals()), run_scores(ledger.rows())
        assert {n: dict(cells) for n, cells in added.items()} == {
            n: dict(cells) for n, cells in counted.items()
        }
        assert ledger.task_digests() == {t.id: t.digest for t in ledger.planned().tasks}
        failed = {f.name for f in ledger.failures([c.id for c in ledger.planned().candidates])}
        lines = (*ledger.lines(TrialFilter(failed=True)), *ledger.lines(TrialFilter(faulted=True)))
        assert failed == {line.name for line in lines}


def test_a_candidate_is_known_by_the_model_that_answered_first_and_last(tmp_path: Path) -> None:
    def answered(trial: Trial) -> Attempt:
        ended = mostly(trial)
        if ended.outcome is None:
            return ended
        model = f"{trial.candidate.id}-{'new' if trial.rollout else 'old'}"
        return replace(ended, outcome=replace(ended.outcome, model=model))

    ledger = SqliteLedger(write_run(tmp_path / "r1", squares(), answered))
    assert ledger.answering_models() == {
        "good": ["good-new", "good-old"], "bad": ["bad-new", "bad-old"],
    }  # fmt: skip
