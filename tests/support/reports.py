"""Runs whose results are known beforehand, in a real ledger: for reports, not for the engine."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from bakeoff._lib.redact import Redactor
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt
from bakeoff.core.run_spec import Adaptive, Manifest
from bakeoff.stores.folders import write_manifest
from bakeoff.stores.ledger_writer import SqliteStore

CREATED = "2026-11-16T05:06:40+00:00"


def write_run(
    folder: Path,
    plan: Plan,
    attempt_at: Callable[[Trial], Attempt | None],
    *,
    adaptive: Adaptive | None = None,
    name: str = "known",
) -> Path:
    """Write a run of *plan* in which each trial came to what *attempt_at* says; None was not run."""
    folder.mkdir(parents=True)

    async def fill() -> None:
        store = SqliteStore(folder)
        store.freeze(plan)
        try:
            for trial in plan:
                if (attempt := attempt_at(trial)) is not None:
                    await store.append(trial, attempt)
        finally:
            await store.close()

    asyncio.run(fill())
    manifest = Manifest(
        run=folder.name, name=name, created_at=CREATED, bakeoff="0.1.0", python="3.11",
        platform="Linux", planned=len(plan), tasks=sum(1 for _ in plan.tasks), plan=plan.digest,
        candidates=tuple(plan.candidates), conditions=plan.conditions, adaptive=adaptive,
        command=("run", "suite.json", "--rollouts", str(plan.rollouts)),
    )  # fmt: skip
    write_manifest(folder, manifest, Redactor())
    return folder
