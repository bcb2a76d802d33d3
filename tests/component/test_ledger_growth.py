"""What work on a ledger costs as it grows: as a ratio in the same run, so that no machine is too slow."""

import asyncio
from pathlib import Path
from time import process_time

from bakeoff.core.plan import Plan
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
