"""One run with a person in front of it: progress, Ctrl-C, exit codes, and what to do next.

`bakeoff run` and every front end read their own files, hand the run to `run_session` with a view
that shows it, and print their own results. How a run starts, is stopped and ends is written here only.
"""

import asyncio
import json
import shlex
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from bakeoff._lib import files
from bakeoff._lib.process_setup import ignore_interrupts
from bakeoff._lib.redact import public_word
from bakeoff._lib.sanitize import for_terminal, well_formed
from bakeoff._lib.value_object import value_object
from bakeoff.app.options import RunOptions
from bakeoff.app.run import execute_run, new_event_loop
from bakeoff.app.run_results import Run
from bakeoff.core.errors import BakeoffError
from bakeoff.core.events import Event, Listener, RunEnded, RunStarted, ignore
from bakeoff.core.stop import Stop

T = TypeVar("T")

_STOPPING = "stopping: the trials under way are finished first; Ctrl-C again to stop now"


class View(ABC):
    """A listener that is opened before the first event and closed after the last one."""

    def open(self) -> None:  # noqa: B027 -- most views have nothing to open
        """Take over the terminal, where the view needs it."""

    def close(self) -> None:  # noqa: B027 -- nor to close
        """Leave the terminal as it was."""

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Show *event*."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show one line."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ExitCode(IntEnum):
    """What a process tells its shell; 2 is the command line parser's, 5 is that of `compare`."""

    OK = 0
    ERROR = 1
    FAULTED = 3
    BUDGET = 4
    ENDPOINT = 6
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes: 0 all was run, 1 an error, 2 the command line is wrong, 3 some could not be run,
4 stopped at the budget, 6 an endpoint was given up, 130 stopped with Ctrl-C"""


@value_object
class SessionResult:
    """How a run ended; `run` is None where it was cut off, `run_id` where it had not started."""

    run: Run | None
    run_id: str | None = None
    interrupted: bool = False
    at_budget: bool = False
    given_up: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run that ended like this: the first of these that is true."""
        if self.run is None:
            return ExitCode.INTERRUPTED
        if self.at_budget:
            return ExitCode.BUDGET
        if self.given_up:
            return ExitCode.ENDPOINT
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FAULTED if self.run.summary().buckets.faults else ExitCode.OK

    @property
    def stopped_early(self) -> bool:
        """Whether the run ended before all of its trials were run."""
        return self.exit_code in {ExitCode.BUDGET, ExitCode.ENDPOINT, ExitCode.INTERRUPTED}

    def next_steps(self, resume: str, *, larger_budget: str | None = None) -> list[str]:
        """Return what a person should do now, in lines; *resume* is the command that resumes the run.

        *larger_budget* is the same command with a larger budget, where the command line has one.
        """
        code = self.exit_code
        if self.run is not None and code is ExitCode.BUDGET:
            change = "with twice as much" if larger_budget else "raise it in the config, then"
            return [
                f"stopped at the budget ({_spent(self.run)}), the next request might have passed it; "
                f"{change} continue with: {larger_budget or resume}"
            ]
        if code is ExitCode.ENDPOINT:
            step = "what was not run counts as not run; once that is fixed, continue with"
            return [*(f"given up: {why}" for why in self.given_up), f"{step}: {resume}"]
        if code is ExitCode.INTERRUPTED:
            started = self.run_id is not None
            return [
                f"stopped; continue with: {resume}"
                if started
                else "stopped before anything was run"
            ]
        if code is ExitCode.FAULTED:
            return [f"some trials faulted; once that is fixed, run those again with: {resume}"]
        return []


def _spent(run: Run) -> str:
    """Return how much of its budget *run* has spent."""
    cap, billed = run.manifest.cap, run.billed()
    spent = []
    if cap.cost_usd is not None:
        spent.append(f"${billed.most_usd:.4f} of ${cap.cost_usd:.4f}")
    if cap.tokens is not None:
        spent.append(f"{billed.most_tokens:,} of {cap.tokens:,} tokens")
    return ", ".join(spent)


def run_session(options: RunOptions, view: View, *, files: Listener = ignore) -> SessionResult:
    """Run and show it in *view*; *files* gets each event first, to write what it changes."""

    def work(listener: Listener, stop: Stop) -> Coroutine[object, object, Run]:
        command = tuple(sys.argv[1:])
        return execute_run(replace(options, listener=listener, stop=stop, command=command))

    return _session(work, view, files, is_complete=_is_complete)


def rescore_session(run: str, options: RunOptions, view: View) -> SessionResult:
    """Score the stored answers of *run* again and show it in *view*; stopped, it changes nothing."""

    def work(listener: Listener, stop: Stop) -> Coroutine[object, object, Run]:
        from bakeoff.app.rescoring import score_again

        return score_again(run, replace(options, listener=listener, stop=stop))

    return _session(work, view, ignore, is_complete=lambda _: False)


def _session(
    work: Callable[[Listener, Stop], Coroutine[object, object, Run]],
    view: View,
    files: Listener,
    *,
    is_complete: Callable[[Run], bool],
) -> SessionResult:
    """Start, show and end a session: the first Ctrl-C waits for trials under way, the second cuts off."""
    stop = Stop()
    started: RunStarted | None = None
    ended = RunEnded("", stopped_early=True)

    def listen(event: Event) -> None:
        nonlocal started, ended
        if isinstance(event, RunStarted):
            started = event
        elif isinstance(event, RunEnded):
            ended = event
        files(event)
        view(event)

    with view:
        run = _interruptible(work(listen, stop), stop, view.say)
    return SessionResult(
        run=run,
        run_id=started.run_id if started else None,
        interrupted=run is None or (ended.stopped_early and not is_complete(run)),
        at_budget=ended.at_budget,
        given_up=ended.given_up,
    )


def _is_complete(run: Run) -> bool:
    """Whether nothing is left to resume: a stop that came during the last trial stopped nothing."""
    buckets = run.summary().buckets
    return not (buckets.not_run or buckets.cancelled or buckets.faults)


# --- Ctrl-C: once finishes what is under way, twice stops now -------------------------------------


def _interruptible(
    work: Coroutine[object, object, T], stop: Stop, say: Callable[[str], None]
) -> T | None:
    """Return what *work* returns; None where it was stopped at once. *say* tells the person."""

    async def main() -> T | None:
        return await _heeding(work, stop, say)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main())
    finally:
        if not stop.requested:  # else the last words are to be read
            signal.signal(signal.SIGINT, signal.default_int_handler)


async def _heeding(
    work: Coroutine[object, object, T], stop: Stop, say: Callable[[str], None]
) -> T | None:
    task = asyncio.current_task()

    def cancel_once() -> None:
        # a third Ctrl-C must not cut the ledger off while it is being closed
        if task is not None and not task.cancelling():
            task.cancel()

    def interrupt() -> None:
        if stop.requested:
            cancel_once()
            return
        stop.request()
        say(_STOPPING)

    def terminate() -> None:
        stop.request()
        cancel_once()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` leaves it
        loop.add_signal_handler(signal.SIGHUP, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if not stop.requested:
            raise
        return None
    finally:  # nothing is left to be stopped, and the loop is closed in peace
        loop.remove_signal_handler(signal.SIGINT)
        try:
            ignore_interrupts()
        except KeyboardInterrupt:
            ignore_interrupts()


# --- command lines, scripts and files --------------------------------------------------------------


def flags(options: Mapping[str, object]) -> list[str]:
    """Return *options* as words of a command line, without those that are None or False."""
    words: list[str] = []
    for flag, value in options.items():
        if value is not None and value is not False:
            words += [flag] if value is True else [flag, str(value)]
    return words


def command_line(*words: str) -> str:
    """Return *words* as a person types them, without secrets."""
    return for_terminal(shlex.join(map(public_word, words)))


def script_line(*words: str) -> str:
    """Return what a person types to start the script that is running with other *words*."""
    return command_line("python", sys.argv[0], *words)


def run_script(name: str, main: Callable[[], int]) -> int:
    """Return the exit code of *main*; a user's mistake is one message, never a traceback."""
    try:
        return main()
    except BakeoffError as error:
        sys.stderr.write(f"{name}: error: {for_terminal(str(error))}\n")
        return ExitCode.ERROR
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, and with it whoever would read the rest
        return ExitCode.ERROR


def pretty_json(data: object) -> bytes:
    """Return *data* as indented JSON; text that is no valid Unicode is replaced, not refused."""
    try:
        return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(data), indent=2, ensure_ascii=False)
        return well_formed(text + "\n").encode()


def write_json(path: Path, data: object) -> None:
    """Replace the file *path* with *data*; it can be made again from the ledger, and need not be durable."""
    files.make_folder(path.parent)
    files.write_atomic(path, pretty_json(data), durable=False)
