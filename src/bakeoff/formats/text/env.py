"""`.env` files: names and values, line by line, and nothing that runs or expands.

NAME=value            up to the end of the line, or to a # with a space before it
export NAME=value     the same
NAME='as it stands'   nothing in it means anything
NAME="with \\n, \\t, \\r, \\\\, \\", \\$"   and no other escapes
# a comment

A `$` is a dollar sign: no value refers to another. Errors name the line and never the value.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.formats.text.problems import error_of

_LINE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_AFTER = re.compile(r"\s*(#.*)?")
_COMMENT = re.compile(r"(^|\s)#.*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "$": "$"}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the names and values in *path*; where a name is defined twice, the last one counts."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    values: dict[str, str] = {}
    wrong: list[str] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            entry = _entry(line)
        except ValueError as error:
            wrong.append(f"{path}:{number}: {error}")
            continue
        if entry is not None:
            values[entry[0]] = entry[1]
    if wrong:
        raise error_of(wrong)  # without a cause: that would hold the line
    return values


def _entry(line: bytes) -> tuple[str, str] | None:
    text = _text(line).strip()
    if not text or text.startswith("#"):
        return None
    match = _LINE.fullmatch(text)
    if match is None:
        raise ValueError("not NAME=value (a name has letters, digits and _, and no digit first)")
    return match[1], _value(match[2], match[1])


def _text(line: bytes) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    if "\0" in text:
        raise ValueError("a NUL character, which no environment can hold")
    return text


def _value(text: str, name: str) -> str:
    if text[:1] not in {"'", '"'}:
        return _COMMENT.sub("", text, count=1).rstrip()
    quoted = (_SINGLE if text[0] == "'" else _DOUBLE).match(text)
    if quoted is None:
        raise ValueError(f"the quote of {name} is not closed on its line")
    if not _AFTER.fullmatch(text, quoted.end()):
        raise ValueError(f"there is text after the closing quote of {name}")
    return quoted[1] if text[0] == "'" else _ESCAPE.sub(lambda m: _escaped(m[1], name), quoted[1])


def _escaped(character: str, name: str) -> str:
    if character not in _ESCAPES:
        raise ValueError(
            f"an escape in {name} that is not supported: write \\\\ for a backslash, or use '...'"
        )
    return _ESCAPES[character]


@value_object
class Environment:
    """The variables a run may read, and a notice about their source with names only."""

    values: Mapping[str, str] = field(repr=False)
    notice: str | None = None


def environment(shell: Mapping[str, str], *, named: Path | None, here: Path) -> Environment:
    """Return *shell* with what a file adds to it: the one that was *named*, else `.env` in *here*.

    The shell wins. A file that was not named explicitly may belong to another program: if it cannot
    be parsed it is left out, with a notice.
    """
    path = named or here / ".env"
    if named is None and not path.is_file():
        return Environment(values=shell)
    try:
        variables = read_env_file(path)
    except UsageError as error:
        if named is not None:
            raise
        return Environment(values=shell, notice=f"{error}; the file is left out")
    taken = [name for name in variables if name not in shell]
    notice = f"{path}: {', '.join(taken) or 'nothing new'}"
    if kept := [name for name in variables if name in shell]:
        notice += f" (the shell has its own {', '.join(kept)})"
    return Environment(values={**variables, **shell}, notice=f"read from {notice}")
