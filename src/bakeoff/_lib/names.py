"""File names made from ids: the one encoder."""

import re

from bakeoff._lib.digest import digest_bytes

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80
_DIGITS = 16  # enough that a million ids do not meet
_DIGESTED = re.compile(rf"-[0-9a-f]{{{_DIGITS}}}$")


def safe_name(text: str) -> str:
    """Return a file name for *text*: readable, never a path, and different for different texts.

    A text that is already a plain name stays as it is; any other gets a digest of itself, and so
    does one that looks as if it had one.
    """
    plain = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST]
    if plain and plain == text and not _DIGESTED.search(plain):
        return plain
    return digested_name(text)


def digested_name(text: str) -> str:
    """Return a file name for *text* with a digest of it, also where it is a plain name already."""
    plain = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST]
    digest = digest_bytes(text.encode("utf-8", "surrogatepass"))[:_DIGITS]
    return f"{plain.strip('._') or 'id'}-{digest}"
