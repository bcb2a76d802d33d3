"""Parsers, and the options that several commands share."""

from argparse import (
    ArgumentParser,
    ArgumentTypeError,
    RawDescriptionHelpFormatter,
    _ArgumentGroup,
)
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff._lib.argument_parser import ReadableParser

if TYPE_CHECKING:
    from bakeoff.core.task import ScorerSpec

ArgumentGroup = _ArgumentGroup  # argparse has no public name for what `add_argument_group` returns


def new_parser(name: str, description: str, *, examples: str | None = None) -> ArgumentParser:
    """Return a parser for one command."""
    parser = ReadableParser(
        prog=f"bakeoff {name}",
        description=description,
        epilog=None if examples is None else f"examples:\n{examples}",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true",
                        help="show the traceback of every error")  # fmt: skip
    return parser


def options_of(parser: ArgumentParser) -> set[str]:
    """Return every option that *parser* takes."""
    return set(parser._option_string_actions)  # noqa: SLF001 -- argparse has no public list of them


def add_run(parser: ArgumentParser) -> None:
    """Let the command take a run."""
    parser.add_argument(
        "run", nargs="?", default="latest", metavar="RUN",
        help="an id, the start of one, a name, a folder, or `latest` (the default)",
    )  # fmt: skip


def add_output(parser: ArgumentParser | ArgumentGroup) -> None:
    """Add the option for the folder of the runs."""
    parser.add_argument(
        "--output", type=Path, default=Path("runs"), metavar="DIR",
        help="where runs are kept (default: runs)",
    )  # fmt: skip


def add_trust(parser: ArgumentParser | ArgumentGroup) -> None:
    """Add the options for what a suite may do beyond asking questions."""
    parser.add_argument(
        "--trust", action="store_true",
        help="let the suite run its own Python (module:attr) as scorers, with your rights",
    )  # fmt: skip
    parser.add_argument(
        "--allow-env", action="append", default=[], metavar="NAME",
        help="let the suite read this environment variable, for its endpoint; may be repeated",
    )  # fmt: skip


def add_json(parser: ArgumentParser | ArgumentGroup) -> None:
    """Let the command print JSON."""
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")


def dollars(text: str) -> float:
    """Read an amount of money that is more than nothing."""
    try:
        amount = float(text.removeprefix("$"))
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not an amount in US dollars") from error
    if not 0 < amount < float("inf"):
        raise ArgumentTypeError(f"must be more than 0, not {text}")
    return amount


def difference(text: str) -> float:
    """Read a difference of scores, more than 0 and less than 1."""
    try:
        number = float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 < number < 1:
        raise ArgumentTypeError(f"must be between 0 and 1, such as 0.05, not {text}")
    return number


def two(text: str) -> tuple[str, str]:
    """Read the names of two candidates, A,B."""
    first, _, second = (part.strip() for part in text.partition(","))
    if not first or not second:
        raise ArgumentTypeError(f"{text!r} is not a pair: write the names of two candidates, A,B")
    return first, second


def names(text: str) -> list[str]:
    """Read names with commas between them."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise ArgumentTypeError(f"{text!r} holds no name: write names with commas between, A,B")
    return found


def two_runs(text: str) -> tuple[str, str]:
    """Read the names of two runs, A,B."""
    first, _, second = (part.strip() for part in text.partition(","))
    if not first or not second:
        raise ArgumentTypeError(f"{text!r} is not a pair: write the names of two runs, A,B")
    return first, second


def source_path(text: str) -> Path | str:
    """Read what is to be run: a path, or the address of a data set, which is none."""
    return text if text.startswith("hf://") else Path(text)


def add_columns(parser: ArgumentParser | ArgumentGroup) -> None:
    """Let the command say what the columns of a data set are."""
    parser.add_argument("--expected", metavar="COLUMN",
                   help="of a data set: the column with the expected answers")  # fmt: skip
    parser.add_argument("--map", action="append", default=[], type=column, dest="columns",
                   metavar="ROLE=COLUMN",
                   help="of a data set: the column that is the id, prompt, category, group, tags or file, or a "
                   "variable of that name; may be repeated")  # fmt: skip


def add_scorer(parser: ArgumentParser | ArgumentGroup) -> None:
    """Let the command say how answers are checked."""
    parser.add_argument(
        "--scorer", action="append", default=[], type=scorer, dest="scorers", metavar="NAME",
        help="how answers are checked, instead of what the files say: exact, or with settings "
        "'numeric{tolerance=0.01}'; may be repeated (bakeoff list scorers)",
    )  # fmt: skip


def column(text: str) -> tuple[str, str]:
    """Read ROLE=COLUMN; the column may be empty: there is none."""
    role, sign, name = (part.strip() for part in text.partition("="))
    if not sign or not role:
        raise ArgumentTypeError(f"{text!r}: write ROLE=COLUMN, such as prompt=question")
    return role, name


def scorer(text: str) -> "ScorerSpec":
    """Read NAME, or NAME{SETTING=VALUE, ...} with values as in TOML."""
    import tomllib

    from bakeoff.core.task import ScorerSpec

    name, brace, settings = text.strip().partition("{")
    try:
        table = tomllib.loads(f"settings = {{{settings}") if brace else {"settings": {}}
    except tomllib.TOMLDecodeError as error:
        raise ArgumentTypeError(
            f"{text!r}: write NAME, or NAME{{SETTING=VALUE}}, such as 'numeric{{tolerance=0.01}}': {error}"
        ) from error
    return ScorerSpec(name=name.strip(), settings=table["settings"])


def shard(text: str) -> str:
    """Read I/N, the number of a shard and how many there are."""
    from bakeoff.core.errors import UsageError
    from bakeoff.planning.shards import read_shard

    try:
        read_shard(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error
    return text


def setting(text: str) -> tuple[str, str]:
    """Read KEY=VALUE."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ArgumentTypeError(f"{text!r}: write KEY=VALUE, such as limits.time_s=30")
    return key.strip(), value.strip()
