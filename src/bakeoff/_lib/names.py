"""File names made from ids: the one encoder."""

import re

from bakeoff._lib.digest import digest_bytes

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80


def safe_name(text: str) -> str:
    """Return a file name for *text*: readable, never a path, and different for different texts.

    A text that is already a plain name stays as it is; any other gets a digest of itself.
    """
    plain = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST]
    if plain == text and plain:
        return plain
    return f"{plain.strip('_') or 'id'}-{digest_bytes(text.encode('utf-8', 'surrogatepass'))[:8]}"
