"""Pictures and files of messages as people write them: a path beside the suite, or a data URI."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff._lib.phrasing import near_file
from bakeoff.core.attachment import (
    AttachedBytes,
    Attachment,
)
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message
from bakeoff.core.values import Json

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_SHAPES = '{"text": "..."}, {"image": "cat.png"} or {"file": "notes.pdf"}'


def attachment(given: str, folder: Path | None, *, at: int = 0) -> Attachment:
    """Return the file that *given* names, a path in *folder* or a data URI, before character *at*.

    A path never leads out of the folder: a suite may come from somebody else. Without a folder, only
    a data URI is taken.
    """
    if given[:5].lower() == "data:":
        return AttachedBytes.of_uri(given, at=at)
    if _ADDRESS.match(given):
        raise UsageError(f"{given}: nothing is fetched; save the file beside the suite and name it")
    if folder is None:
        raise UsageError(f"{given}: there is no folder here to look in; give a data URI")
    return Attachment.of_file(_inside(given, folder), at=at)


def _inside(given: str, folder: Path) -> Path:
    """Return the file at *given*, wherever links on it lead."""
    path = folder / given
    try:
        real = path.resolve()
        there = real.is_file()
    except (OSError, ValueError) as error:
        raise UsageError(f"{given[:80]!r} is no path: {error}") from error
    if not real.is_relative_to(folder.resolve()):
        raise UsageError(
            f"{given} is outside {folder.resolve()}, the folder of the file that names it; put a copy there"
        )
    if not there:
        meant = near_file(path)
        hint = f"; did you mean {meant.name!r}?" if meant else ""
        raise UsageError(
            f"{path} is not a file{hint}" if path.exists() else f"{path} does not exist{hint}"
        )
    return real


def attachments(given: Sequence[str], folder: Path | None) -> tuple[Attachment, ...]:
    """Return the files that *given* names, which stand before the text of their message."""
    return tuple(attachment(each, folder) for each in given)


def with_files(
    messages: Sequence[Message], files: Sequence[str], at: SourceLocation
) -> tuple[Message, ...]:
    """Return *messages* with *files* before what the user says last; they stand *at* a place."""
    read = attachments(files, Path(at.file).parent)
    numbers = range(len(messages) - 1, -1, -1)
    last = next((n for n in numbers if messages[n].role == "user"), None)
    if last is None:
        return (*messages, Message(role="user", content="", attachments=read))
    asking = replace(messages[last], attachments=(*read, *messages[last].attachments))
    return (*messages[:last], asking, *messages[last + 1 :])


def content_of(
    parts: Sequence[Mapping[str, Json]], at: SourceLocation
) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text of *parts*, a list *at* a place, and the files that stand in it."""
    text, attached = "", []
    for part in parts:
        match _part(part):
            case "text", str(piece):
                text += piece
            case "image" | "file" as kind, str(given):
                read = attachment(given, Path(at.file).parent, at=len(text))
                if kind == "image" and not read.is_image:
                    raise UsageError(f"{given[:40]} is {read.media_type}, no picture; write `file`")
                attached.append(read)
            case _:
                raise UsageError(f"a part of `content` is {_SHAPES}, not {_abridged(part)}")
    return text, tuple(attached)


def _part(part: Mapping[str, Json]) -> tuple[str, Json]:
    """Return the kind of *part* and what it holds: ours, or as OpenAI's chat API writes it."""
    if part.get("type") == "image_url":
        url = part.get("image_url")
        inside = url if isinstance(url, Mapping) else {"url": url}
        _refuse_more(inside, "url")
        return "image", inside.get("url")
    kinds = [kind for kind in ("text", "image", "file") if kind in part]
    if len(kinds) != 1:
        return "", None
    _refuse_more(part, "type", *kinds)
    return kinds[0], part[kinds[0]]


def _refuse_more(part: Mapping[str, Json], *known: str) -> None:
    """Raise where *part* says more than is sent: nothing of a prompt is dropped without a word."""
    for key in part:
        if key not in known:
            raise UsageError(f"a part of `content`: {key!r} is not sent; leave it out")


def _abridged(part: Mapping[str, Json]) -> str:
    shown = str(dict(part))
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
