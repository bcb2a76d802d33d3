"""Where rollouts are kept: a folder each, and one for every run of a task."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.files import safe_name
from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.stores.folders import INNER, stays_inside
from bakeoff.stores.ledger_writer import LEDGER

_STAMP = "%Y%m%d__%H-%M-%S"
_STAMPED = re.compile(r"\d{8}__\d{2}-\d{2}-\d{2}[a-z]*")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One start of a benchmark: its folder, and where the runs of it are."""

    folder: Path

    @property
    def stamp(self) -> str:
        """When it was started; its name among the rollouts of the benchmark."""
        return self.folder.name

    @property
    def ledger(self) -> Path:
        """The folder of the run itself, as `bakeoff show` takes it."""
        return self.folder / INNER

    @property
    def data(self) -> Path:
        """The folder that holds all rollouts and all runs."""
        return self.folder.parent.parent.parent

    @property
    def index(self) -> Path:
        """The small file that tells where the rollout is."""
        name = f"rollout_{self.folder.parent.name}__{self.stamp}.json"
        return self.data / "rollouts" / "temp" / name

    def run_dir(self, run_id: str) -> Path:
        """Return where the files of one run are."""
        return self.data / "runs" / run_id


def new_rollout(data: Path, name: str, moment: datetime) -> Rollout:
    """Make the folder of a new rollout; two that start in the same second never share anything.

    The first run's folder is made with it: stamps of other benchmarks must be different too, since
    all runs lie in one folder.
    """
    base = moment.strftime(_STAMP)
    try:
        for letter in ("", *_LETTERS[1:]):
            stamp = base + letter
            rollout = Rollout(folder=data / "rollouts" / safe_name(name) / stamp)
            try:
                files.make_folder(rollout.run_dir(f"{stamp}-0"), exist_ok=False)
                files.make_folder(rollout.folder, exist_ok=False)
            except FileExistsError:
                continue
            files.make_folder(rollout.index.parent)
            return rollout
    except OSError as error:
        raise UsageError(f"no rollout can be kept in {data}: {error.strerror}") from error
    raise UsageError(f"too many rollouts started at {base} in {data}; try again in a second")


def find_rollout(data: Path, reference: str, stamp: str | None = None) -> Rollout:
    """Return a rollout by its folder, or by the benchmark's name: the newest, or that of *stamp*."""
    folder = Path(reference)
    if is_rollout(folder):
        return Rollout(folder=folder)
    benchmark = data / "rollouts" / safe_name(reference)
    if not benchmark.is_dir() and folder.is_dir():
        benchmark = folder
    found = rollouts_in(benchmark)
    if not found:
        known = [path.name for path in (data / "rollouts").glob("*") if rollouts_in(path)]
        hint = did_you_mean(reference, known)
        raise UsageError(f"no rollout of {reference!r} in {data / 'rollouts'}; {hint}")
    if stamp is None:
        return found[-1]
    near = [rollout for rollout in found if rollout.stamp == stamp] or [
        rollout for rollout in found if rollout.stamp.startswith(stamp)
    ]
    if len(near) != 1:
        stamps = ", ".join(rollout.stamp for rollout in (near or found)[-10:])
        how = "is short for several" if near else "is none"
        raise UsageError(f"{stamp!r} {how} of the rollouts of {reference!r}; there are: {stamps}")
    return near[0]


def is_rollout(folder: Path) -> bool:
    """Whether *folder* is that of a rollout that has begun."""
    return (folder / INNER / LEDGER).is_file()


def rollouts_in(benchmark: Path) -> list[Rollout]:
    """Return the rollouts of a benchmark, the oldest first."""
    if not benchmark.is_dir():
        return []
    folders = sorted(path for path in benchmark.iterdir() if _STAMPED.fullmatch(path.name))
    return [
        Rollout(folder=path)
        for path in folders
        if is_rollout(path) and stays_inside(path / INNER / LEDGER, benchmark)
    ]
