"""All mistakes of a file, gathered so that they can be reported at once."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from bakeoff.core.errors import UsageError

_MOST_SHOWN = 20


class Problems:
    """What is wrong so far; `raise_any` ends it."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._seen: set[str] = set()

    def gathered(self, of: str = "") -> AbstractContextManager[None]:
        """Keep a mistake that the block raises, and go on after it.

        A mistake that many share is kept once: *of* is what the message calls the one at hand.
        """
        return _Gathering(self, of)

    def add(self, error: UsageError, of: str = "") -> None:
        """Keep the mistakes that *error* lists."""
        for problem in error.problems:
            same = problem.replace(of, "") if of else problem
            if same not in self._seen:
                self._seen.add(same)
                self._problems.append(problem)

    @property
    def message(self) -> str:
        """All mistakes, one per line."""
        return str(error_of(self._problems))

    def raise_any(self) -> None:
        """Raise one error with all mistakes; nothing without any."""
        if self._problems:
            raise error_of(self._problems)


class _Gathering(AbstractContextManager[None]):
    """A class and no generator, because every test of a suite goes through some of them."""

    __slots__ = ("_of", "_problems")

    def __init__(self, problems: Problems, of: str) -> None:
        self._problems = problems
        self._of = of

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool | None:
        if not isinstance(error, UsageError):
            return None
        self._problems.add(error, self._of)
        return True


def error_of(
    problems: Sequence[str], *, location: str | None = None, task: str | None = None
) -> UsageError:
    """Return one error that lists *problems*, a line each; of very many it shows the first."""
    more = len(problems) - _MOST_SHOWN
    lines = [*problems[:_MOST_SHOWN], *([f"... and {more} more"] if more > 0 else [])]
    return UsageError("\n".join(lines), problems=problems, location=location, task=task)


def at_location(location: str, error: UsageError) -> UsageError:
    """Return *error* with the place of its mistakes before each of them."""
    problems = [f"{location}: {problem}" for problem in error.problems]
    return error_of(problems, location=location, task=error.task)


def in_task(task: str, error: UsageError) -> UsageError:
    """Return *error* with the id of its task before each of its mistakes."""
    return error_of([f"task {task!r}: {problem}" for problem in error.problems], task=task)
