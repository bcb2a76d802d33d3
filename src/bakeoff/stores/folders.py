"""Where runs are kept: one folder each."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from string import ascii_lowercase

import msgspec

from bakeoff._lib import files
from bakeoff._lib.clock import stamp
from bakeoff._lib.files import remove_partial_files, write_atomic
from bakeoff._lib.phrasing import did_you_mean, near
from bakeoff._lib.redact import Redactor
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Manifest
from bakeoff.stores.baselines import read_baselines
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import LEDGER
from bakeoff.stores.writing import writing_to

MANIFEST = "manifest.json"
LATEST = "latest"
INNER = "run"  # where a folder in another tool's layout keeps its run

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_NOT_A_SLUG = re.compile(r"[^a-z0-9]+")


@positional_value_object
class RunEntry:
    """A run that was found; without a manifest, the `trouble` says why it cannot be read."""

    folder: Path
    manifest: Manifest | None
    trouble: str | None = None

    @property
    def run_name(self) -> str | None:
        """What a person called the run."""
        return None if self.manifest is None else self.manifest.run_name

    @property
    def created_at(self) -> str:
        """When the run was started; nothing where that cannot be read."""
        return "" if self.manifest is None else self.manifest.created_at


def check_run_name(name: str) -> None:
    """Raise where *name* cannot be the name of a run."""
    if name == LATEST or not _RUN_NAME.fullmatch(name):
        raise UsageError(
            f"a run cannot be called {name!r}: a name has letters, digits, dots, dashes and "
            f"underscores, 60 at most, and is not {LATEST!r}"
        )


def new_folder(output: Path, name: str, moment: datetime) -> Path:
    """Make a folder of its own for a run."""
    slug = _NOT_A_SLUG.sub("-", name.lower()).strip("-")[:40]
    base = f"{stamp(moment)}-{slug or 'run'}"
    return fresh_folder(output, numbered(base, "-"), what="run")


def fresh_folder(parent: Path, names: Iterable[str], *, what: str) -> Path:
    """Make a folder in *parent* under the first of *names* that is free; two runs never share one."""
    try:
        files.make_folder(parent, durable=True)
        for name in names:
            folder = parent / name
            try:
                folder.mkdir(mode=files.FOLDER_MODE)
            except FileExistsError:
                continue
            files.sync_folder(parent)
            return folder
    except OSError as error:
        raise UsageError(f"no {what} can be kept in {parent}: {error.strerror}") from error
    raise UsageError(f"no name is free for a {what} in {parent}; try again in a second")


def numbered(base: str, separator: str) -> Iterator[str]:
    """Yield *base*, and then *base* with a number."""
    yield base
    for number in range(2, 1000):
        yield f"{base}{separator}{number}"


def lettered(base: str) -> Iterator[str]:
    """Yield *base*, and then *base* with a letter."""
    yield base
    for letter in ascii_lowercase[1:]:
        yield f"{base}{letter}"


def make_folder(folder: Path) -> Path:
    """Make just this folder for a run; it must be a new one."""
    try:
        files.make_folder(folder, exist_ok=False, durable=True)
    except FileExistsError as error:
        raise UsageError(f"{folder} is there already; a run needs a new folder") from error
    except OSError as error:
        raise UsageError(f"no run can be kept in {folder}: {error.strerror}") from error
    return folder


def write_manifest(folder: Path, manifest: Manifest, redactor: Redactor) -> None:
    """Write *manifest*, readable and whole; only for who holds the lock of the folder."""
    data = redactor.data(msgspec.json.encode(manifest))
    with writing_to(folder / MANIFEST):
        remove_partial_files(folder / MANIFEST)
        write_atomic(folder / MANIFEST, msgspec.json.format(data, indent=2) + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of the run in *folder*: from its file, else as the ledger has it."""
    path = folder / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        if not (folder / LEDGER).is_file():
            raise UsageError(f"{folder} is not the folder of a run: no {MANIFEST}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # the ledger knows as well
    ledger = SqliteLedger(folder)
    return ledger.manifest_copy() or _manifest_of(ledger, folder)


def damaged_manifest(folder: Path) -> str | None:
    """Return what is wrong with the manifest's file, in a line; None where it is as it was written."""
    path = folder / MANIFEST
    copy = SqliteLedger(folder).manifest_copy()
    try:
        written = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}); the ledger has what was in it"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"{path} is damaged; the ledger has what was in it"
    if copy is not None and copy != written:
        return f"{path} is not what the run wrote; the ledger has that"
    return None


def _manifest_of(ledger: SqliteLedger, folder: Path) -> Manifest:
    """Return what the ledger of an older version tells of a manifest that is lost."""
    plan = ledger.planned()
    return Manifest(
        run=folder.name,
        name=folder.name,
        created_at=ledger.started_at() or "",
        bakeoff="",
        python="",
        platform="",
        planned=len(plan),
        tasks=plan.task_count,
        plan=plan.digest,
        candidates=tuple(plan.candidates),
        conditions=plan.conditions,
    )


def list_runs(output: Path) -> list[RunEntry]:
    """Return every run in *output*, the oldest first; those that cannot be read at all come first."""
    entries = [
        _entry(folder) for folder in folders_in(output, LEDGER) if (folder / MANIFEST).is_file()
    ]
    return sorted(entries, key=lambda entry: (entry.created_at, entry.folder.name))


def folders_in(parent: Path, marker: str) -> list[Path]:
    """Return the folders in *parent* that hold the file *marker*, by name; no link leads out of it."""
    if not parent.is_dir():
        return []
    return sorted(
        folder
        for folder in parent.iterdir()
        if (folder / marker).is_file() and stays_inside(folder / marker, parent)
    )


def stays_inside(path: Path, root: Path) -> bool:
    """Whether *path*, wherever links on it lead, is below *root*."""
    return path.resolve().is_relative_to(root.resolve())


def refuse_link_out(
    folder: Path, output: Path, *, names: Sequence[str] = (MANIFEST, LEDGER)
) -> None:
    """Raise where a run leads elsewhere by a link: out of *output*, or its files out of its folder.

    A folder that is named by its own path is no link, and may be anywhere.
    """
    is_there = folder.parent.resolve() == output.resolve()
    if is_there and folder.is_symlink() and not stays_inside(folder, output):
        raise UsageError(
            f"{folder} is a link out of {output}, to {folder.resolve()}: that may be anybody's; if it "
            "is the run that you mean, name it by that path"
        )
    for path in (folder / name for name in names):
        if path.is_symlink() and not stays_inside(path, folder):
            raise UsageError(
                f"{path} is a link to {path.resolve()}, out of the folder of its run: it is not followed"
            )


def _entry(folder: Path) -> RunEntry:
    try:
        return RunEntry(folder, read_manifest(folder))
    except UsageError as error:
        return RunEntry(folder, None, str(error))


def find_run(reference: str, output: Path) -> Path:
    """Return the folder of a run: by id, path, name, baseline, the start of its id, or `latest`.

    Of several runs with one name it is the newest.
    """
    path = Path(reference)
    for name in (reference, str(path / INNER)):
        if reference not in {"", LATEST} and (
            folder := folder_at(name, output, LEDGER, own=(MANIFEST, LEDGER))
        ):
            return folder
    if len(path.parts) > 1:
        why = f"there is no {LEDGER} in it" if path.is_dir() else "it is not there"
        raise UsageError(f"{reference} is not the folder of a run: {why}")
    runs = list_runs(output)
    if not runs:
        raise UsageError(f"there are no runs in {output}; start one with: bakeoff run SUITE")
    named = [entry for entry in runs if entry.run_name == reference]
    if reference and named:
        return named[-1].folder
    baseline = read_baselines(output).get(reference)
    if baseline is not None and baseline != reference:
        return find_run(baseline, output)
    names = [entry.run_name for entry in runs if entry.run_name]
    folders = [entry.folder for entry in runs]
    return choose_folder(reference, folders, what="run", where=output, names=names)


def folder_at(reference: str, parent: Path, marker: str, *, own: Sequence[str]) -> Path | None:
    """Return the folder with *marker* that *reference* names, by its path or its name in *parent*.

    The files *own* of that folder must not be links that lead out of it.
    """
    for folder in (parent / reference, Path(reference)):
        if reference not in {"", LATEST} and (folder / marker).is_file():
            refuse_link_out(folder, parent, names=own)
            return folder
    return None


def choose_folder(
    reference: str, folders: Sequence[Path], *, what: str, where: Path, names: Sequence[str] = ()
) -> Path:
    """Return one of *folders*, which are the oldest first: `latest`, or by the start of its name.

    *names* are what else a person may have meant.
    """
    if not folders:
        raise UsageError(f"there is no {what} in {where}")
    if reference == LATEST:
        return folders[-1]
    matches = [folder for folder in folders if folder.name == reference] or [
        folder for folder in folders if reference and folder.name.startswith(reference)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = ", ".join(folder.name for folder in matches[-10:])
        raise UsageError(
            f"{reference!r} is short for several names in {where}: {several}; write more of it"
        )
    known = [*names, *(folder.name for folder in folders)][-20:]
    meant = near(reference, [*known, LATEST])
    hint = f"did you mean {meant!r}?" if meant else did_you_mean(reference, known)
    raise UsageError(f"there is no {what} {reference!r} in {where}: {hint}")
