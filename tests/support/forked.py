"""Python programs in processes of their own, forked from one that has imported Bakeoff already.

Most of the CPU time of a short command is the import of modules, and the tests run a great many
commands. What is forked has a process id, a session, standard streams and an exit code of its own,
as every process has. What a Python does before it runs a program is not seen here: tests of
start-up, of signals and of kills start a new one with `support.cli.started`.
"""

import atexit
import multiprocessing
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

# a new Python reads these before it runs anything
_KILLED_S = 60.0
_READ_AT_START = ("PYTHON", "LC_", "LANG")


def can_fork(words: Sequence[str | Path], env: Mapping[str, str]) -> bool:
    """Return whether a forked process with *env* besides ours runs *words* as a new one does."""
    python, first = str(words[0]), str(words[1])
    known = python == sys.executable and (first == "-m" or not first.startswith("-"))
    return known and not any(name.startswith(_READ_AT_START) for name in env)


def run_forked(
    words: Sequence[str],
    *,
    files: tuple[Path, Path],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
) -> int:
    """Run `python *words*` (`-m module ...` or `script ...`) to its end; return its exit code.

    Standard output and standard error go to *files*, and *env* is all the environment it has.
    """
    streams = [str(file.absolute()) for file in files]
    process = _server().Process(
        target=_become, args=(list(words), streams, str(cwd), dict(env), _search_path())
    )
    process.start()
    try:
        process.join(timeout_s)
        if process.exitcode is None:
            raise subprocess.TimeoutExpired(list(words), timeout_s)
    finally:
        if process.exitcode is None:  # too late, or the test was interrupted
            _kill(process)
    return process.exitcode


def _kill(process: multiprocessing.context.ForkServerProcess) -> None:
    """End *process* and all of its session, and wait for it, but not for ever."""
    process.kill()  # it may not lead a session yet
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join(_KILLED_S)
    assert process.exitcode is not None, f"it lives {_KILLED_S:g} s after it was killed"


@cache
def _server() -> multiprocessing.context.ForkServerContext:
    """Return the process that forks: it has no threads, and ends with the tests."""
    import bakeoff.cli
    import bakeoff.frontends

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            module.name
            for package in (bakeoff.cli, bakeoff.frontends)
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        ]
    )
    return context


@cache
def _search_path() -> list[str]:
    """Return where a new Python looks for modules, but for the folder of the program."""
    code = "import sys; print('\\n'.join(sys.path[1:]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def _become(
    words: list[str], streams: list[str], cwd: str, env: dict[str, str], path: list[str]
) -> None:
    """Run a program in this process, with all that a new Python would have put in place."""
    os.setsid()
    for number, file in enumerate(streams, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    is_module = words[0] == "-m"
    home = Path.cwd() if is_module else Path(words[0]).resolve().parent
    sys.path[:] = [str(home), *path]
    sys.argv[:] = words[1:] if is_module else words
    try:
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()
