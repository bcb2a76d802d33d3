"""A run is checked: every record, every file."""

from dataclasses import dataclass

from bakeoff.api.runs import Run
from bakeoff.stores.folders import damaged_manifest


@dataclass(frozen=True, kw_only=True)
class Checked:
    """How many records of a run can be read, what is damaged, and which trials are lost by that."""

    records: int
    lines: tuple[str, ...]
    trials: tuple[str, ...]


def check_run(run: Run) -> Checked:
    """Read all that is kept of *run*, and return what is not as it was written."""
    records = sum(1 for _ in run.trials())
    damage = run.damage()
    manifest = damaged_manifest(run.folder)
    return Checked(
        records=records,
        lines=(*damage.lines, *([manifest] if manifest else [])),
        trials=damage.trials,
    )
