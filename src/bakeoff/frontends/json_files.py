"""JSON files of the front ends: indented, atomic, readable by their owner only."""

import json
from pathlib import Path

import msgspec

from bakeoff._lib import files
from bakeoff._lib.sanitize import well_formed


def pretty_json(data: object) -> bytes:
    """Return *data* as indented JSON; text that is no valid Unicode is replaced, not refused."""
    try:
        return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(data), indent=2, ensure_ascii=False)
        return well_formed(text + "\n").encode()


def write_json(path: Path, data: object) -> None:
    """Replace the file *path* with *data*; it can be made again from the ledger, and need not be durable."""
    files.make_folder(path.parent)
    files.write_atomic(path, pretty_json(data), durable=False)
