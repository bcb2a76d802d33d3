"""Converts glob patterns, as git and shells write them, to regular expressions over bytes.

`*` and `?` match within one name, `**` between slashes matches any number of folders. File names are
bytes, because an agent may use names that are not valid text.
"""

import re
import string

from bakeoff.core.errors import SandboxError


def path_parts(path: str) -> list[str]:
    """Return the components of *path* without empty ones and `.`."""
    return [part for part in path.split("/") if part not in ("", ".")]


def normalize_path(path: str) -> str:
    """Return *path* without empty components and `.`; SandboxError where it contains `..`."""
    parts = path_parts(path)
    if ".." in parts:
        raise SandboxError(f"{path!r} leads out of the workspace; give a path inside it")
    return "/".join(parts)


_POSIX = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}
_NEVER = rb"(?!)"
_SLASH = ord("/")


def compile_glob(pattern: bytes) -> re.Pattern[bytes]:
    """Return a regular expression that matches the same paths as *pattern* in git's wildmatch."""
    return re.compile(glob_to_regex(pattern), re.DOTALL)


def compile_tree_glob(pattern: str) -> re.Pattern[bytes]:
    """Return a regular expression for the paths that a glob from the root matches, and all below.

    Raises ValueError where the pattern is empty or contains `..`.
    """
    parts = path_parts(pattern)
    if not parts or ".." in parts:
        raise ValueError(f"{pattern!r} names nothing inside the workspace")
    plain = glob_to_regex("/".join(parts).encode("utf-8", "surrogateescape"))
    return re.compile(plain + rb"(?:/.*)?", re.DOTALL)


def literal_prefix(pattern: str) -> str:
    """Return the folder that contains every match of a glob."""
    parts = path_parts(pattern)
    wild = next((n for n, part in enumerate(parts) if set(part) & set("*?[\\")), len(parts))
    return "/".join(parts[: min(wild, len(parts) - 1)])


def glob_to_regex(pattern: bytes) -> bytes:
    """Return *pattern* as the source of a regular expression."""
    parts: list[bytes] = []
    at = 0
    while at < len(pattern):
        piece, at = _next(pattern, at)
        if piece == _NEVER:
            return _NEVER
        parts.append(piece)
    return b"".join(parts)


def _next(pattern: bytes, at: int) -> tuple[bytes, int]:
    match pattern[at : at + 1]:
        case b"*":
            return _stars(pattern, at)
        case b"?":
            return rb"[^/]", at + 1
        case b"[":
            return _bracket(pattern, at + 1)
        case b"\\":
            escaped = pattern[at + 1 : at + 2]
            return (re.escape(escaped), at + 2) if escaped else (_NEVER, at + 1)
        case plain:
            return re.escape(plain), at + 1


def _stars(pattern: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    starts_name = at == 0 or pattern[at - 1] == _SLASH
    after = pattern[end : end + 1]
    if end - at < 2 or not starts_name or after not in (b"", b"/"):
        return rb"[^/]*", end
    return (rb"(?:.*/)?", end + 1) if after else (rb".*", end)


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the character class that begins after the bracket at *at*, and where it ends."""
    negated = pattern[at : at + 1] in (b"!", b"^") and bool(pattern[at : at + 1])
    at += negated
    members: set[int] = set()
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if at >= len(pattern):
            return _NEVER, at
        if pattern[at : at + 2] == b"[:" and (end := pattern.find(b":]", at + 2)) >= 0:
            named = _POSIX.get(pattern[at + 2 : end])
            if named is None:
                return _NEVER, end
            members.update(named.encode())
            at = end + 2
            continue
        low, at = _member(pattern, at)
        high = low
        if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] not in (b"", b"]"):
            high, at = _member(pattern, at + 1)
        if low < 0 or high < 0:
            return _NEVER, at
        members.update(range(low, high + 1))
    taken = (set(range(256)) - members if negated else members) - {_SLASH}
    if not taken:
        return _NEVER, at + 1
    return b"[" + b"".join(rb"\x%02x" % byte for byte in sorted(taken)) + b"]", at + 1


def _member(pattern: bytes, at: int) -> tuple[int, int]:
    if pattern[at : at + 1] == b"\\":
        at += 1
    return (pattern[at], at + 1) if at < len(pattern) else (-1, at)
