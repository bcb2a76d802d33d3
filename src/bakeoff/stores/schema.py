"""The shape of the ledger, and how values become its bytes."""

import zlib
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from bakeoff._lib.digest import digest
from bakeoff._lib.files import write_atomic
from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.stores.compact_json import encode

VERSION = 1

DDL = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE task (
  row INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
  id TEXT NOT NULL, category TEXT, body BLOB NOT NULL, crc INTEGER);

-- a candidate under its conditions
CREATE TABLE candidate (
  row INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
  id TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER);

-- the plan: in each block, its tasks × its candidates × its rollouts
CREATE TABLE block (block INTEGER PRIMARY KEY, rollouts INTEGER NOT NULL);
CREATE TABLE block_task (
  block INTEGER NOT NULL, position INTEGER NOT NULL, task INTEGER NOT NULL REFERENCES task,
  PRIMARY KEY (block, position)) WITHOUT ROWID;
CREATE TABLE block_candidate (
  block INTEGER NOT NULL, position INTEGER NOT NULL,
  candidate INTEGER NOT NULL REFERENCES candidate,
  PRIMARY KEY (block, position)) WITHOUT ROWID;

-- task, candidate and rollout name a trial: the first two by content, through their digests
CREATE TABLE attempt (
  rollout INTEGER NOT NULL, task INTEGER NOT NULL REFERENCES task,
  candidate INTEGER NOT NULL REFERENCES candidate, number INTEGER NOT NULL,
  superseded INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL, score REAL, passed INTEGER,
  fault_boundary TEXT, fault_transient INTEGER,
  elapsed_s REAL NOT NULL, model_s REAL NOT NULL, first_token_s REAL,
  requests INTEGER NOT NULL, input_tokens INTEGER, output_tokens INTEGER, cost_usd REAL,
  load_s REAL, flags TEXT,
  -- all parties of the attempt together, with tries that failed
  billed_usd REAL, billed_tokens INTEGER NOT NULL,
  unsure_usd REAL NOT NULL, unsure_tokens INTEGER NOT NULL, unpriced INTEGER NOT NULL,
  blob TEXT, body BLOB,
  -- of everything else in the row but `superseded`; NULL in rows that older versions wrote
  crc INTEGER);
CREATE UNIQUE INDEX attempt_once ON attempt (rollout, task, candidate, number);
CREATE UNIQUE INDEX one_attempt_counts ON attempt (rollout, task, candidate) WHERE NOT superseded;

CREATE TABLE session (
  row INTEGER PRIMARY KEY, started_at TEXT NOT NULL, ended_at TEXT, host TEXT, pid INTEGER,
  version TEXT, planned INTEGER NOT NULL);
"""

CHECKED_TABLES = ("task", "candidate", "attempt")
ATTEMPT_COLUMNS = 27
REAL_COLUMNS = (6, 10, 11, 12, 16, 17, 19, 21)
SUPERSEDED = (
    4  # its place in a row of `attempt`: the one column that changes, so no checksum covers it
)

_PLAIN, _DEFLATED = b"p", b"z"
_WORTH_DEFLATING = 1024  # below it, a record costs more time than it saves room

T = TypeVar("T")

Value = str | int | float | bytes | None
Row = tuple[Value, ...]

_row_encoder = msgspec.msgpack.Encoder()


def seat(candidate: Candidate, conditions: Conditions) -> str:
    """Return the identity of a candidate under its conditions."""
    return digest([candidate.digest, conditions.digest])


def row_crc(*values: Value) -> int:
    """Return the checksum of a row, from its values as SQLite returns them."""
    return zlib.crc32(_row_encoder.encode(values))


def attempt_crc(row: Row) -> int:
    """Return the checksum of a row of `attempt`, which may end with its checksum or not yet have one."""
    return zlib.crc32(_row_encoder.encode((*row[:SUPERSEDED], *row[5:26])))


def real(value: float | None) -> float | None:
    """Return *value* as a REAL column gives it back."""
    return None if value is None or value != value else float(value)  # noqa: PLR0124 -- NaN is NULL


def pack(value: object, redactor: Redactor | None = None) -> bytes:
    """Return *value* as compact bytes without secrets."""
    try:
        data = encode(value)
    except UnicodeEncodeError:
        data = encode(_clean(msgspec.to_builtins(value, enc_hook=str)))
    if redactor is not None:
        data = redactor.data(data)
    if len(data) < _WORTH_DEFLATING:
        return _PLAIN + data
    return _DEFLATED + zlib.compress(data, 1)


def unpack(data: bytes, kind: type[T]) -> T:
    """Return the value that `pack` made *data* from."""
    plain = zlib.decompress(data[1:]) if data[:1] == _DEFLATED else data[1:]
    return msgspec.json.decode(plain, type=kind)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(str(k)): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    return value


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
