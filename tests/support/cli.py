"""The command line as a process of its own, and what it leaves behind."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, AnyStr

from support.forked import can_fork, run_forked

BAKEOFF = (sys.executable, "-m", "bakeoff")

# Prints a line for each trial that is acknowledged, the moment it is.
_ACKNOWLEDGING = """
import sys
import bakeoff
from bakeoff.core.events import TrialEnded

suite, url, output, parallel, resume = sys.argv[1:]

def listen(event):
    if isinstance(event, TrialEnded) and event.last:
        print(event.trial.name, flush=True)

try:
    bakeoff.run(suite, models=["m"], base_url=url, output=output, parallel=int(parallel),
                resume=resume or None, listener=listen)
except bakeoff.BakeoffError as error:
    sys.exit(f"bakeoff: error: {error}")
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A process that is over."""

    code: int
    out: str
    err: str

    @property
    def resume_command(self) -> list[str]:
        """The words of the resume command that it printed, as a shell would read them."""
        line = next(text for text in self.err.splitlines() if "continue with: " in text)
        program, *words = shlex.split(line.partition("continue with: ")[2])
        assert program == "bakeoff"
        return words


@dataclass(frozen=True, kw_only=True)
class Running:
    """A process under way; what it writes goes to files, so that it can never block."""

    process: subprocess.Popen[bytes]
    out_file: Path
    err_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def err(self) -> str:
        return self.err_file.read_text(encoding="utf-8", errors="replace")

    @property
    def out(self) -> str:
        return self.out_file.read_text(encoding="utf-8", errors="replace")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 60) -> Ended:
        code = self.process.wait(timeout_s)
        return Ended(code=code, out=self.out, err=self.err)

    def kill_after(self, seconds: float) -> bool:
        """Kill -9 after so long; whether there was still something to kill."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self.process.wait(60) < 0


@contextmanager
def started(
    words: Sequence[str | Path],
    *,
    folder: Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[Running]:
    """Start a program in a session of its own; it does not outlive the block."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.monotonic_ns()
    out_file, err_file = folder / f"{stamp}.out", folder / f"{stamp}.err"
    with out_file.open("wb") as out, err_file.open("wb") as err:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    with not_outliving(process):
        try:
            yield Running(process=process, out_file=out_file, err_file=err_file)
        except BaseException:  # only then: what it leaves behind by itself is for the test to see
            for pid in processes_of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise


@contextmanager
def not_outliving(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Lend *process* to the block and end it with it: one that nobody waits for fails later tests."""
    with process:  # closes its pipes, and waits for it
        try:
            yield process
        finally:
            process.kill()


def run(
    words: Sequence[str | Path],
    *,
    folder: Path | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60,
) -> Ended:
    """Run a program of ours to its end; what it writes is kept in *folder* where one is named."""
    with TemporaryDirectory(prefix="bakeoff-said-") as place:
        folder = folder or Path(place)
        if not can_fork(words, env or {}):
            with started(words, folder=folder, env=env, cwd=cwd) as running:
                return running.wait(timeout_s)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = time.monotonic_ns()
        out_file, err_file = folder / f"{stamp}.out", folder / f"{stamp}.err"
        code = run_forked(
            [str(word) for word in words[1:]],
            files=(out_file, err_file),
            cwd=cwd or Path.cwd(),
            env={**os.environ, **(env or {})},
            timeout_s=timeout_s,
        )
        out, err = (file.read_text("utf-8", errors="replace") for file in (out_file, err_file))
        return Ended(code=code, out=out, err=err)


def bakeoff(
    *words: str | Path,
    folder: Path | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60,
) -> Ended:
    """Run one command to its end."""
    return run([*BAKEOFF, *words], folder=folder, env=env, cwd=cwd, timeout_s=timeout_s)


def acknowledging(
    suite: Path, url: str, output: Path, *, resume: str = "", parallel: int = 8
) -> list[str]:
    """Return the words of a program that runs *suite* and prints each trial that is durable."""
    given = [str(suite), url, str(output), str(parallel), resume]
    return [sys.executable, "-c", _ACKNOWLEDGING, *given]


def until(condition: Callable[[], object], *, timeout_s: float = 20) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def only_run(output: Path) -> Path:
    """The one run folder with a ledger in *output*."""
    (folder,) = [ledger.parent for ledger in output.glob("*/ledger.sqlite")]
    return folder


def summary(run: Path, *, folder: Path) -> dict[str, Any]:
    """What `bakeoff summarize --json` says of a run."""
    ended = bakeoff("summarize", run.name, "--output", run.parent, "--json", folder=folder)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def processes_of_session(session: int) -> list[int]:
    """The processes that still belong to a session that was started here."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found
