"""An argument parser that answers a mistake in one line."""

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Iterator, Sequence
from typing import NoReturn

_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "
_NO_VALUE = re.compile(r"argument (\S+?/)?(--\S+): expected (one|at least one) argument")
_CHOICE = re.compile(r"argument (.+): invalid choice: ('[^']*') \(choose from (.*)\)", re.DOTALL)


class ReadableParser(ArgumentParser):
    """Says what is wrong, what was probably meant, and where to look."""

    def parse_known_args(  # type: ignore[override]  # of all its overloads, the one that is called
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse *args*; an option whose value may be left out takes only one of its choices."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args([*self._with_values(words)], namespace)

    def _with_values(self, words: Sequence[str]) -> Iterator[str]:
        """Yield *words*, with the value of an option that would take the next word for it."""
        for number, word in enumerate(words):
            action = self._option_string_actions.get(word)
            if action is None or action.nargs != "?" or action.choices is None:
                yield word
            else:
                has_value = set(words[number + 1 : number + 2]) & set(action.choices)
                yield word if has_value else f"{word}={action.const}"

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit with 2."""
        from bakeoff._lib.sanitize import for_terminal

        text = for_terminal(f"{self.prog}: error: {self._in_words(message)}")
        self.exit(2, f"{text} (see {self.prog} --help)\n")

    def _in_words(self, message: str) -> str:
        from bakeoff._lib.phrasing import did_you_mean, near

        _, unknown, words = message.partition(_UNKNOWN)
        if unknown and words.startswith("--"):
            option = words.split()[0].partition("=")[0]
            return f"no option is called {option!r}; {did_you_mean(option, self._long_options())}"
        if unknown:
            return f"unexpected argument: {words}"
        _, missing, names = message.partition(_MISSING)
        if missing:
            return f"missing: {names}{self._choices_of(names)}"
        if bare := _NO_VALUE.fullmatch(message):
            return self._needs_a_value(bare[2])
        if choice := _CHOICE.fullmatch(message):
            known = [name.strip(" '") for name in choice[3].split(",")]
            meant = near(choice[2].strip("'"), known)
            hint = f"did you mean {meant!r}?" if meant else f"there are: {', '.join(known)}"
            return f"argument {choice[1]}: invalid choice: {choice[2]}; {hint}"
        return message

    def _needs_a_value(self, option: str) -> str:
        action = self._option_string_actions[option]
        return f"{option} needs a value: {option} {action.metavar or action.dest.upper()}"

    def _long_options(self) -> list[str]:
        """Return the long options of this parser and of its commands."""
        parsers: list[ArgumentParser] = [self]
        for action in self._actions:
            if isinstance(action.choices, dict):
                parsers += [p for p in action.choices.values() if isinstance(p, ArgumentParser)]
        names = (name for parser in parsers for name in parser._option_string_actions)  # noqa: SLF001 -- argparse has no public list
        return sorted({name for name in names if name.startswith("--")})

    def _choices_of(self, name: str) -> str:
        """Return what may be written for the argument *name*, where only a few words may be."""
        for action in self._actions:
            if name in (action.metavar, action.dest) and action.choices is not None:
                return f" (one of: {', '.join(map(str, action.choices))})"
        return ""


def duration(text: str) -> float:
    """Read a duration, such as 90s, 15m or 2h, in seconds."""
    from bakeoff._lib.phrasing import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def seconds(duration_s: float | None) -> str | None:
    """Return a duration as an option takes it."""
    return None if duration_s is None else f"{duration_s:g}s"


def count(text: str) -> int:
    """Read a whole number that is 1 or more."""
    try:
        number = int(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from error
    if number < 1:
        raise ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def add_executor(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Add the options that say where trials are run."""
    parser.add_argument("--executor", choices=["local", "processes", "ray"],
                        help="where trials run: in this process (local, the default), in worker processes, or on "
                        "a Ray cluster")  # fmt: skip
    parser.add_argument("--workers", type=count, metavar="N",
                        help="with --executor processes or ray: how many (default: as many as there are cores)")  # fmt: skip
    parser.add_argument("--ray-address", metavar="ADDRESS",
                        help="with --executor ray: the head of the cluster as HOST:PORT, or auto (the default)")  # fmt: skip


def add_patience(parser: ArgumentParser | _ArgumentGroup, *, separator: str = "-") -> None:
    """Add the options that say when an endpoint is given up."""
    parser.add_argument(f"--give{separator}up{separator}after", type=duration, metavar="TIME",
                        help="how long to wait for an endpoint that is down, such as 90s or 2h "
                        "(default: 15m); no trial faults meanwhile")  # fmt: skip
    parser.add_argument(f"--keep{separator}going", action="store_true",
                        help="go on even if every request to an endpoint fails alike, as with a "
                        "wrong key")  # fmt: skip
