"""A run of another process, stopped and resumed: what the viewer's buttons do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Manifest
from bakeoff.stores.folders import read_manifest
from bakeoff.stores.writing import being_written, writer_of

LOG = "resume.log"
# what the ledger does not keep of how a run was started, and what would change where its answers come from
_ONLY_BY_HAND = ("--replay", "--record", "--cache")


def stop_run(folder: Path) -> None:
    """Do to the process that runs *folder* what Ctrl-C does: at once it finishes what is under way, twice it stops."""
    pid = writer_of(folder)
    if pid is None:
        where = "on another machine" if being_written(folder) else "no more"
        raise UsageError(f"{folder.name} is running {where}: there is nothing to stop here")
    try:
        os.kill(pid, signal.SIGINT)
    except OSError as error:
        raise UsageError(f"{folder.name} cannot be stopped: {error.strerror}") from error


def resume_run(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a process that runs what is missing of *folder*; what it says is in `resume.log` there."""
    if being_written(folder):
        raise UsageError(f"{folder.name} is running already")
    manifest = read_manifest(folder)
    if reason := not_resumable(manifest):
        raise UsageError(reason)
    words = ["run", "--resume", folder.name, "--output", str(folder.parent.resolve())]
    with (folder / LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "bakeoff", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it outlives the viewer and its Ctrl-C
        )


def not_resumable(manifest: Manifest) -> str:
    """Return why a page cannot resume the run, a person at a terminal can; nothing where it can."""
    for word in manifest.command:
        option = word.partition("=")[0]
        if option in _ONLY_BY_HAND:
            return (
                f"{manifest.run} was started with {option}: resume it in a terminal with the same command "
                f"and --resume {manifest.run}"
            )
    return ""
