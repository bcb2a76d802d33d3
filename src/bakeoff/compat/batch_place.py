"""Where batches are kept: a folder each, with the run itself in it and the files that show it."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import msgspec

from bakeoff._lib import private
from bakeoff._lib.atomic import write_atomic
from bakeoff._lib.names import digested_name
from bakeoff._lib.suggest import did_you_mean
from bakeoff.compat.batch_models import report_name
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.stores.folders import INNER, refuse_link_out, stays_inside
from bakeoff.stores.sqlite import LEDGER

STATE = "batch.json"
LATEST = "latest"
_PREFIX = "batch_"
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_LATEST = ":latest"


@dataclass(frozen=True, kw_only=True)
class BatchState:
    """What a batch must remember beyond its ledger; `sessions` are the moments it was started."""

    task: str
    parallel: int
    machine: dict[str, Json] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    sessions: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The folder of a batch."""

    folder: Path

    @property
    def id(self) -> str:
        """The name of the batch: that of its folder."""
        return self.folder.name

    @property
    def run(self) -> Path:
        """The folder of the run itself, as `bakeoff show` takes it."""
        return self.folder / INNER

    @property
    def begun(self) -> bool:
        """Whether there is a ledger to go on with; a batch may have been killed before that."""
        ledger = self.run / LEDGER
        return ledger.is_file() and ledger.stat().st_size > 0

    def state(self) -> BatchState:
        """Return what the batch remembers."""
        path = self.folder / STATE
        try:
            return msgspec.json.decode(path.read_bytes(), type=BatchState)
        except OSError as error:
            raise UsageError(f"{self.folder} is not the folder of a batch: no {STATE}") from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is damaged: {error}; start a new batch") from error

    def remember(self, state: BatchState) -> None:
        """Keep *state*, whole or not at all."""
        data = msgspec.json.format(msgspec.json.encode(state), indent=2)
        self.write(STATE, data + b"\n")

    def write(self, name: str, data: bytes) -> None:
        """Write one of the files of the batch, whole or not at all."""
        try:
            write_atomic(self.folder / name, data)
        except OSError as error:
            raise UsageError(
                f"{self.folder / name} cannot be written: {error.strerror}; the results are kept in "
                f"{self.run}: make room, then go on with --resume {self.id}"
            ) from error


def new_batch(output: Path, moment: datetime) -> Batch:
    """Make the folder of a new batch; two started in the same second never share one."""
    base = f"{_PREFIX}{moment.strftime('%Y%m%d_%H%M%S')}"
    try:
        private.make_folder(output)
        for number in range(1, 1000):
            folder = output / (base if number == 1 else f"{base}_{number}")
            try:
                folder.mkdir(mode=private.FOLDER_MODE)
            except FileExistsError:
                continue
            return Batch(folder=folder)
    except OSError as error:
        raise UsageError(f"no batch can be kept in {output}: {error.strerror}") from error
    raise UsageError(f"there are too many batches called {base} in {output}")


def find_batch(reference: str, output: Path) -> Batch:
    """Return a batch by its id, by its path, or the newest as `latest`."""
    found = [p.parent for p in output.glob(f"*/{STATE}") if stays_inside(p, output)]
    newest = sorted(folder for folder in found if folder.name.startswith(_PREFIX))
    if reference == LATEST and newest:
        return Batch(folder=newest[-1])
    for folder in (output / reference, Path(reference)):
        if reference and (folder / STATE).is_file():
            refuse_link_out(folder, output, names=(STATE, INNER))
            return Batch(folder=folder)
    known = sorted(folder.name for folder in found)
    raise UsageError(
        f"there is no batch {reference!r} in {output}: {did_you_mean(reference, known)}"
    )


def with_session(state: BatchState, moment: float) -> BatchState:
    """Return *state* with one more start."""
    return replace(state, sessions=(*state.sessions, moment))


def names_of(candidates: tuple[Candidate, ...]) -> dict[str, str]:
    """Return the name of each candidate's model, by candidate: the shortest that no other has."""
    ways = [
        {c.id: report_name(c.model) for c in candidates},
        {c.id: c.model.full_name for c in candidates},
        {c.id: c.model.label or c.id for c in candidates},
    ]
    taken = [Counter(name.casefold() for name in names.values()) for names in ways]
    return {
        c.id: next(
            (names[c.id] for names, seen in zip(ways, taken, strict=True)
             if seen[names[c.id].casefold()] == 1),
            c.id,
        )
        for c in candidates
    }  # fmt: skip


def file_names(models: dict[str, str]) -> dict[str, str]:
    """Return the name of each model's file; whoever comes later gives way where two would be equal."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for key, model in models.items():
        plain = _PLAIN.sub("_", model.removesuffix(_LATEST)).strip("._")[:80]
        if not plain or plain.casefold() in taken:
            # `org_m` is plain by itself, and `org/m` may have had that name before
            plain = digested_name(model)
        taken.add(plain.casefold())
        found[key] = f"{plain}_result.json"
    return found
