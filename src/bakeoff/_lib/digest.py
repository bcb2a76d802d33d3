"""Identity by content."""

import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b, file_digest
from pathlib import Path

# made once: `json.dumps` with options makes one at every call
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_bytes(data: bytes) -> str:
    """Return the 128-bit digest of *data* in hex."""
    return blake2b(data, digest_size=16).hexdigest()


def digest(value: object) -> str:
    """Return the digest of plain data; key order does not matter."""
    return digest_bytes(_canonical.encode(value).encode("ascii"))


def digest_of_parts(parts: Iterable[str]) -> str:
    """Return the digest of a text that comes in *parts*: of canonical JSON, that of its value."""
    whole = blake2b(digest_size=16)
    for part in parts:
        whole.update(part.encode("ascii"))
    return whole.hexdigest()


# made by running the files or keeping them in git; no part of the content
LEFT_OUT = frozenset({"__pycache__", ".pytest_cache", ".git"})


def tree_digest(folder: Path, *, without: Collection[str] = ()) -> str:
    """Return the 128-bit digest of *folder* in hex: paths, kinds, executable bits and contents.

    A link counts as the link that it is and is never followed; an empty folder counts too. What
    has a name in *without*, in whatever folder, does not count.
    """
    left_out = LEFT_OUT | frozenset(without)
    whole = blake2b(digest_size=16)
    for name, kind, content in _entries(os.fsencode(folder), b"", left_out):
        for part in (name, kind, content):
            whole.update(len(part).to_bytes(8, "big"))
            whole.update(part)
    return whole.hexdigest()


def _entries(
    folder: bytes, under: bytes, left_out: frozenset[str]
) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield every path in *folder* in the order of its bytes, with its kind and what it holds."""
    with os.scandir(folder) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        name = under + entry.name
        if os.fsdecode(entry.name) in left_out:
            continue
        if entry.is_symlink():
            yield name, b"link", os.readlink(entry.path)  # noqa: PTH115 -- names may be no text
        elif entry.is_dir(follow_symlinks=False):
            yield name, b"folder", b""
            yield from _entries(entry.path, name + b"/", left_out)
        elif entry.is_file(follow_symlinks=False):
            yield name, _kind(entry), _content(entry.path)
        else:
            yield name, b"special", b""  # opening a FIFO would wait for ever


def _kind(entry: os.DirEntry[bytes]) -> bytes:
    # only what git keeps: other bits differ between two clones under another umask
    return b"program" if entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR else b"file"


def _content(path: bytes) -> bytes:
    with Path(os.fsdecode(path)).open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).digest()
