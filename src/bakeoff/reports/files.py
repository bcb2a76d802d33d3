"""The summary as a file in the run's folder."""

from pathlib import Path

import msgspec

from bakeoff._lib.atomic import write_atomic
from bakeoff.core.errors import LedgerError
from bakeoff.core.values import Json
from bakeoff.stats.summary import Summary

SUMMARY = "summary.json"


def as_json(summary: Summary) -> dict[str, Json]:
    """Return *summary* as plain data; what is unknown is null."""
    data: dict[str, Json] = msgspec.to_builtins(summary)
    return data


def write_summary(folder: Path, summary: Summary) -> None:
    """Write *summary* into *folder*."""
    text = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    try:
        write_atomic(folder / SUMMARY, text + b"\n")
    except OSError as error:
        raise LedgerError(
            f"{folder / SUMMARY} cannot be written: {error.strerror}; the trials are kept: "
            "make room there, then: bakeoff summarize"
        ) from error
