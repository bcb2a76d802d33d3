"""Set up this process: standard streams that must not make it fail, and rare garbage collection."""

import atexit
import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

_INTERRUPTED = 128 + signal.SIGINT


def run_as_process(main: Callable[[], int]) -> NoReturn:
    """Run *main* as the one thing that this process does, and exit with its code.

    Output that cannot be written is dropped. Where that was standard output, the exit code is not 0.
    """
    tune_for_one_command()
    open_closed_descriptors()
    output, errors = _Forgiving.instead_of(sys.stdout), _Forgiving.instead_of(sys.stderr)
    sys.stdout, sys.stderr = output, errors
    sys.__stdout__, sys.__stderr__ = output, errors  # type: ignore[misc]  # nothing else holds the old ones
    code = _code_of(main)
    try:
        ignore_interrupts()
    except KeyboardInterrupt:
        ignore_interrupts()  # the code stands
    output.flush()
    if output.failure is not None:
        code = code or 1
        if output.failure.errno != errno.EPIPE:  # a closed pipe needs no message
            why = output.failure.strerror
            errors.write(f"bakeoff: error: standard output could not be written: {why}\n")
    errors.flush()
    sys.exit(code)


def _code_of(main: Callable[[], int]) -> int:
    """Return the exit code of *main*; a parser of a command line leaves in its own way."""
    try:
        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as leaving:
        if not isinstance(leaving.code, int | None):
            raise  # a message, which Python prints
        return leaving.code or 0


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from now on; one that was pressed a moment ago is still raised, by this call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def open_closed_descriptors() -> None:
    """Open the null device in place of standard streams that are closed.

    Else the next file that is opened, such as a ledger, takes their number, and whatever is
    printed is written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


class _Forgiving(io.TextIOWrapper):
    """A text stream that remembers its first failure, and from then on writes to the null device."""

    failure: OSError | None = None

    @classmethod
    def instead_of(cls, stream: TextIO | None) -> "_Forgiving":
        """Return a stream that takes the place of *stream*, with its settings."""
        if not isinstance(stream, io.TextIOWrapper):  # it was closed when Python started
            return cls(io.FileIO(os.devnull, "w"), encoding="utf-8")
        encoding, line_buffering = stream.encoding, stream.line_buffering
        write_through = stream.write_through
        errors = "backslashreplace" if stream.errors == "strict" else stream.errors
        return cls(
            stream.detach(),
            encoding=encoding,
            errors=errors,
            line_buffering=line_buffering,
            write_through=write_through,
        )

    def write(self, text: str) -> int:
        """Write *text*, if it can be written."""
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush what can be written."""
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Let what is buffered, and all that comes, go to the null device."""
        self.failure = self.failure or error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        super().flush()


# --- garbage collection ---------------------------------------------------------------------------


_YOUNG = 100_000  # imports make as many; Python's 700 is passed several times a tick with 64 trials under way


def tune_for_one_command() -> None:
    """Set the collector for a process that does one thing and ends; a fifth of a short command.

    Imports make many objects and no garbage, and at the end of the process all of them would be
    looked at once more.
    """
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # the first to be registered is the last to be called


def collect_at_exit() -> None:
    """Let everything be looked at once more at the end: some libraries report what is not freed."""
    atexit.unregister(gc.freeze)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect cycles fifteen times less often within the block, and skip what is there already."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _YOUNG) if before[0] else 0, *before[1:])
    froze_here = gc.get_freeze_count() == 0  # objects that others froze stay frozen
    if froze_here:
        gc.freeze()
    try:
        yield
    finally:
        if froze_here:
            gc.unfreeze()
        gc.set_threshold(*before)
