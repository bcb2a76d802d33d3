"""The seal of a ledger: a checksum of its whole file, written when its run is closed."""

import zlib
from contextlib import suppress
from pathlib import Path

from bakeoff._lib.files import write_atomic

_CHUNK = 1 << 20


def seal(ledger: Path) -> None:
    """Write the seal of *ledger*, which nobody has open for writing any more."""
    if not _log(ledger).exists():  # what is in a log beside it is not in the file yet
        write_atomic(_seal_of(ledger), _checksum(ledger).encode())


def break_seal(ledger: Path) -> None:
    """Take the seal away, before anything is written."""
    _seal_of(ledger).unlink(missing_ok=True)


def is_sealed(ledger: Path) -> bool:
    """Return whether *ledger* is, to the last bit, as it was when its run was closed."""
    written = b""
    with suppress(OSError):
        written = _seal_of(ledger).read_bytes()
    return bool(written) and not _log(ledger).exists() and written == _checksum(ledger).encode()


def has_seal(ledger: Path) -> bool:
    """Return whether *ledger* was closed in order, whatever happened to it since."""
    return _seal_of(ledger).is_file()


def _seal_of(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.crc")


def _log(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}-wal")


def _checksum(path: Path) -> str:
    crc = size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    return f"{crc:08x} {size}\n"
