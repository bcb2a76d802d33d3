"""`bakeoff merge`: the runs of all shards of a plan become one ordinary run."""

import os
import resource
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff._lib import files, process_identity, scratch
from bakeoff._lib.clock import now
from bakeoff._lib.redact import Redactor
from bakeoff.app.comparing import served_otherwise
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, summarized
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Listener, Notice, ignore
from bakeoff.core.run_spec import Manifest, Shard
from bakeoff.models.recording.recorder import SESSIONS
from bakeoff.planning.resume import fields_apart
from bakeoff.reports.artifacts import ARTIFACTS, artifacts_folder
from bakeoff.stores.checkpoints import CHECKPOINTS
from bakeoff.stores.folders import (
    check_run_name,
    find_run,
    new_folder,
    read_manifest,
    write_manifest,
)
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import BLOBS
from bakeoff.stores.merging import finish_merged, merge_ledgers
from bakeoff.stores.writing import being_written, writing_to

RECORDING = "recording"
_UNFINISHED = ".merging-"
_FILES_OF_A_RUN, _OTHER_FILES = 2, 200  # open at once: the ledger, and what SQLite keeps beside it


@dataclass(frozen=True, kw_only=True)
class _ShardRun:
    """The run of a shard."""

    folder: Path
    manifest: Manifest
    shard: Shard


def merge(
    runs: Sequence[Run | str | Path],
    *,
    output: str | Path = DEFAULT_OUTPUT,
    name: str | None = None,
    listener: Listener = ignore,
    command: Sequence[str] = (),
) -> Run:
    """Put the runs of all shards of a plan together as one new run in *output*, and return it.

    The runs themselves stay as they are.
    """
    if name is not None:
        check_run_name(name)
    output = Path(output)
    shards = _checked([_shard_run(run, output) for run in runs])
    _allow_open_files(len(runs))
    for line in _notices(shards):
        listener(Notice(line))
    workshop = _new_workshop(output)
    try:
        made = workshop / "merged"  # not where a run is looked for
        made.mkdir(mode=files.FOLDER_MODE)
        _fill(made, shards)
        for line in _gather_recordings(made / RECORDING, shards):
            listener(Notice(line))
        folder = _finished(made, shards, output, name=name, command=command)
    finally:
        scratch.remove(workshop)
    return summarized(folder, SqliteLedger(folder).planned())


# --- what may be merged --------------------------------------------------------------------------


def _shard_run(run: Run | str | Path, output: Path) -> _ShardRun:
    """Return the run of a shard that is named; raise where it is none, or not whole."""
    folder = run.folder if isinstance(run, Run) else find_run(str(run), output)
    manifest = read_manifest(folder)
    if manifest.shard is None:
        raise UsageError(f"{folder} is no shard: it was started without --shard")
    if being_written(folder):
        raise UsageError(f"{folder} (shard {manifest.shard.name}) is still running")
    ledger = SqliteLedger(folder)
    if lines := ledger.damage().lines:
        raise UsageError(
            f"shard {manifest.shard.name} is damaged, so nothing was merged: {'; '.join(lines)}; "
            f"first: bakeoff run --resume {folder}"
        )
    if ledger.planned().digest != manifest.shard.part or not ledger.knows_places():
        raise UsageError(
            f"the plan of {folder} was changed after it was cut as shard {manifest.shard.name}: merge "
            "first, and score again or add rollouts after that"
        )
    return _ShardRun(folder=folder, manifest=manifest, shard=manifest.shard)


def _checked(runs: Sequence[_ShardRun]) -> list[list[_ShardRun]]:
    """Return the runs of each shard; raise where they are not the shards of one plan, all of them."""
    if not runs:
        raise UsageError("name the runs of all shards: bakeoff merge RUN RUN ...")
    first, *others = runs
    seen = {first.folder.resolve()}
    for run in others:
        if run.folder.resolve() in seen:
            raise UsageError(f"{run.folder} is named twice")
        seen.add(run.folder.resolve())
        if run.shard.plan != first.shard.plan:
            raise UsageError(
                f"{run.folder} is a shard of another plan than {first.folder}: "
                f"{'; '.join(_apart(first, run))}"
            )
        if run.shard.count != first.shard.count:
            raise UsageError(
                f"{first.folder} is shard {first.shard.name} and {run.folder} is shard {run.shard.name} of "
                "one plan: they overlap; merge shards of one cut only"
            )
    shards: dict[int, list[_ShardRun]] = {}
    for run in runs:
        shards.setdefault(run.shard.index, []).append(run)
    # where there are more shards than tasks, the last ones are empty
    needed = range(min(first.shard.count, first.shard.tasks))
    if missing := [f"{n}/{first.shard.count}" for n in needed if n not in shards]:
        raise UsageError(
            f"{'shards are' if len(missing) > 1 else 'a shard is'} missing: {', '.join(missing)}; run "
            "what is missing with --shard, and name all of them"
        )
    return [shards[index] for index in sorted(shards)]


def _apart(one: _ShardRun, other: _ShardRun) -> Iterator[str]:
    """Yield what the plans of two shards differ in."""
    before, after = one.manifest, other.manifest
    alike = True
    if before.conditions.digest != after.conditions.digest:
        alike = False
        fields = fields_apart(before.conditions.identity(), after.conditions.identity())
        yield f"the conditions differ in {', '.join(fields)}"
    known, named = ({c.id: c for c in m.candidates} for m in (before, after))
    for name in known.keys() | named.keys():
        if name not in known or name not in named:
            alike = False
            yield f"candidate {name!r} is in one of them only"
        elif known[name].digest != named[name].digest:
            alike = False
            fields = fields_apart(known[name].identity(), named[name].identity())
            yield f"candidate {name!r} differs in {', '.join(fields)}"
    for what, old, new in (
        ("tasks", one.shard.tasks, other.shard.tasks),
        ("trials", one.shard.trials, other.shard.trials),
    ):
        if old != new:
            alike = False
            yield f"{new:,} {what} instead of {old:,}"
    if alike:
        yield "the tasks are not the same"


def _notices(shards: Sequence[Sequence[_ShardRun]]) -> Iterator[str]:
    """Yield what a person should know of the runs that are merged."""
    for first, *further in shards:
        if further:
            names = ", ".join(run.folder.name for run in (first, *further))
            yield (
                f"shard {first.shard.name} was run {1 + len(further)} times ({names}): of a trial in "
                "several of them, the first final attempt counts"
            )
    manifests = [run.manifest for shard in shards for run in shard]
    yield from dict.fromkeys(
        line for other in manifests[1:] for line in served_otherwise(manifests[0], other)
    )


def _allow_open_files(runs: int) -> None:
    """Let this process have the files of all *runs* open; raise where the system does not."""
    wanted = _FILES_OF_A_RUN * runs + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise UsageError(
            f"to merge {runs:,} runs, {wanted:,} files are open at once, and this system allows "
            f"{hard:,}: raise the limit (ulimit -n {wanted}), or cut the plan into fewer shards"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- the new folder ------------------------------------------------------------------------------


def _new_workshop(output: Path) -> Path:
    """Return a folder in *output* that is no run; those of merges that were killed are removed."""
    with writing_to(output):
        files.make_folder(output, durable=True)
        for left in output.glob(f"{_UNFINISHED}*"):
            mark = process_identity.find(left.name)
            if mark is not None and process_identity.is_dead(mark):
                scratch.remove(left)
        workshop = output / f"{_UNFINISHED}{process_identity.current()}-{secrets.token_hex(4)}"
        workshop.mkdir(mode=files.FOLDER_MODE)
    return workshop


def _fill(made: Path, shards: Sequence[Sequence[_ShardRun]]) -> None:
    """Write the ledger and the files of the whole run; raise where they are not those of its plan."""
    with writing_to(made):
        for shard in shards:
            for run in shard:
                _copy(run.folder / BLOBS, made / BLOBS)
                _copy(run.folder / CHECKPOINTS, made / CHECKPOINTS)
            _copy(shard[0].folder / ARTIFACTS, made / ARTIFACTS)

    def bring_artifacts(run: Path, trial: str, number: int, becomes: int) -> None:
        before, after = artifacts_folder(run, trial, number), artifacts_folder(made, trial, becomes)
        if run != made:
            _copy(before, after)
        elif before != after and before.is_dir():
            before.rename(after)

    merge_ledgers([[run.folder for run in shard] for shard in shards], made, bring_artifacts)
    whole = shards[0][0].shard.plan
    if SqliteLedger(made, trusting=True).planned().digest != whole:
        raise UsageError(
            f"these shards do not make the plan that they were cut from ({whole}): see bakeoff check "
            "for each of them"
        )


def _copy(source: Path, target: Path) -> None:
    """Copy the files below *source* that *target* has not; links are left out."""
    for folder, _, names in os.walk(source):
        here = Path(folder)
        there = target / here.relative_to(source)
        files.make_folder(there)
        for name in names:
            if not (here / name).is_symlink() and not (there / name).exists():
                shutil.copyfile(here / name, there / name)
                (there / name).chmod(files.FILE_MODE)


def _gather_recordings(target: Path, shards: Sequence[Sequence[_ShardRun]]) -> Iterator[str]:
    """Copy the sessions of all recordings into *target*; yield a line for each that is not there."""
    runs = [run for shard in shards for run in shard]
    folders = {run.manifest.recording: run for run in runs if run.manifest.recording}
    number = 0
    for folder, run in folders.items():
        sessions = sorted(Path(folder).glob(SESSIONS))
        if not sessions:
            yield (
                f"the recording of shard {run.shard.name} is not in {folder}, and not in the merged run"
            )
        for session in sessions:
            number += 1
            with writing_to(target):
                files.make_folder(target)
                shutil.copyfile(session, target / f"{number:06}.jsonl")
                (target / f"{number:06}.jsonl").chmod(files.FILE_MODE)


def _finished(
    made: Path,
    shards: Sequence[Sequence[_ShardRun]],
    output: Path,
    *,
    name: str | None,
    command: Sequence[str],
) -> Path:
    """Write the manifest, and move the run to where runs are kept: from then on it is one."""
    runs = [run for shard in shards for run in shard]
    first, shard = runs[0].manifest, runs[0].shard
    folder = new_folder(output, name or first.name, now())
    recorded = (made / RECORDING).is_dir()
    manifest = replace(
        first,
        run=folder.name,
        created_at=min(run.manifest.created_at for run in runs),
        planned=shard.trials,
        tasks=shard.tasks,
        plan=shard.plan,
        candidates=tuple(SqliteLedger(made, trusting=True).planned().candidates),
        command=tuple(command),
        served={key: value for run in runs for key, value in run.manifest.served.items()},
        cap=shard.cap,
        run_name=name,
        shard=None,
        merged=tuple(run.folder.name for run in runs),
        recording=str((folder / RECORDING).resolve()) if recorded else None,
    )
    with writing_to(folder):
        write_manifest(made, manifest, Redactor())
        finish_merged(made, manifest)
        os.sync()  # once: whoever has the merged run may remove the shards
        made.rename(folder)
        files.sync_folder(output)
    return folder
