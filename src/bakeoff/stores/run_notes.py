"""What a person wrote about a run, in a small file in its folder: tags and a note. The run itself never reads it."""

import re
from pathlib import Path

import msgspec

from bakeoff._lib.files import write_atomic
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError

NOTES = "notes.json"
MOST_TAGS = 20
MOST_NOTE = 4_000
_MOST_TAG = 40


@value_object
class RunNotes:
    """Tags to find a run by, and a note to remember it by."""

    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(folder: Path) -> RunNotes:
    """Return what was written about the run in *folder*; nothing where that cannot be read."""
    try:
        return msgspec.json.decode((folder / NOTES).read_bytes(), type=RunNotes)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return RunNotes()


def write_notes(folder: Path, notes: RunNotes) -> None:
    """Write *notes* about the run in *folder*."""
    try:
        write_atomic(folder / NOTES, msgspec.json.format(msgspec.json.encode(notes)) + b"\n")
    except OSError as error:
        raise UsageError(f"{folder / NOTES} cannot be written: {error.strerror}") from error


def tags_in(text: str) -> tuple[str, ...]:
    """Return the tags that a person typed, with commas or spaces between them."""
    tags = tuple(dict.fromkeys(re.split(r"[,\s]+", text.strip()))) if text.strip() else ()
    if too_long := [tag for tag in tags if len(tag) > _MOST_TAG]:
        raise UsageError(
            f"the tag {too_long[0][:_MOST_TAG]!r}... is longer than {_MOST_TAG} characters"
        )
    if len(tags) > MOST_TAGS:
        raise UsageError(f"a run has {MOST_TAGS} tags at most, and these are {len(tags)}")
    return tuple(filter(None, tags))
