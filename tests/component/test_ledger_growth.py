"""What work on a ledger costs as it grows: as a ratio in the same run, so that no machine is too slow."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time

from bakeoff.core.plan import Plan
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore
from support.plans import attempt, plan, scored_by, tasks


def scored_again_s(folder: Path, before: Plan, after: Plan) -> float:
    """Record every trial of a plan, then put new verdicts in place; return the CPU of the latter."""

    async def work() -> float:
        store = SqliteStore(folder)
        try:
            store.freeze(before)
            trials = list(before)
            async with asyncio.TaskGroup() as group:
                for trial in trials:
                    group.create_task(store.append(trial, attempt()))
            began = process_time()
            for trial in trials:
                store.rescore(trial, attempt(score=0.5))
            store.adopt(after)
            return process_time() - began
        finally:
            await store.close()

    return asyncio.run(work())


def test_scoring_again_grows_no_faster_than_the_number_of_tasks(tmp_path: Path) -> None:
    def cost_s(count: int) -> float:
        before = plan(*tasks(count))
        after = plan(*tasks(count, scorers=scored_by("exact")))
        return scored_again_s(tmp_path / f"{count}", before, after)

    few, many = cost_s(500), cost_s(4000)
    assert many / few < 24, (few, many)  # 8 where it grows with the tasks, 64 with their square


def recorded(folder: Path, given: Plan, answer: str) -> int:
    """Record every trial of a plan with this answer; return the size of its ledger."""

    async def work() -> None:
        store = SqliteStore(folder)
        store.freeze(given)
        # no two alike, as times of day are not
        made = (
            replace(attempt(answer=answer), started_at=1.8e9 + n / 7) for n in range(len(given))
        )
        async with asyncio.TaskGroup() as group:
            for trial, one in zip(given, made, strict=True):
                group.create_task(store.append(trial, one))
        await store.close()

    asyncio.run(work())
    return (folder / "ledger.sqlite").stat().st_size


def questions(count: int, rollouts: int = 1) -> Plan:
    of_each = {"target": "Paris", "scorers": scored_by("exact"), "category": "capitals"}
    return plan(*tasks(count, **of_each), rollouts=rollouts)


def test_a_further_test_with_its_trial_adds_little_to_the_ledger(tmp_path: Path) -> None:
    answer = "The capital of France is Paris."
    few = recorded(tmp_path / "few", questions(1000), answer)
    many = recorded(tmp_path / "many", questions(4000), answer)
    assert (many - few) / 3000 < 200 + len(answer)


def test_a_further_rollout_of_a_test_adds_less(tmp_path: Path) -> None:
    answer = "The capital of France is Paris."
    few = recorded(tmp_path / "few", questions(500), answer)
    many = recorded(tmp_path / "many", questions(500, rollouts=5), answer)
    assert (many - few) / 2000 < 120 + len(answer)


def test_a_long_answer_is_compressed(tmp_path: Path) -> None:
    answer = " ".join(f"Number {n} is not the capital of France." for n in range(20))
    few = recorded(tmp_path / "few", questions(500), answer)
    many = recorded(tmp_path / "many", questions(500, rollouts=5), answer)
    assert (many - few) / 2000 < 120 + len(answer) / 2


def peak_bytes(work: Callable[[], object]) -> int:
    """Return how much memory Python held at most while it did *work*."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_further_test_of_a_stored_plan_takes_16_bytes_of_memory_at_most(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        async def freeze() -> None:
            store = SqliteStore(tmp_path / f"{count}")
            store.freeze(questions(count))
            await store.close()

        asyncio.run(freeze())

        def walk() -> None:
            # the last chunks of both are as large: only what is held of each test differs
            ledger = SqliteLedger(tmp_path / f"{count}", most_held=0, trusting=True)
            stored = ledger.planned()
            assert sum(1 for _ in stored) == sum(1 for _ in stored.tasks) == stored.task_count
            assert stored.digest

        return peak_bytes(walk)

    few, many = peak(8500), peak(11_000)
    assert (many - few) / 2500 < 16, (few, many)
