"""Pictures and files that go with a message: known by their content, read only to be sent or shown."""

import base64
import re
from dataclasses import field
from pathlib import Path, PurePath
from urllib.parse import unquote_to_bytes

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

PDF, TEXT = "application/pdf", "text/plain"
SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    PDF: ".pdf",
    TEXT: ".txt",
}
"""Every kind of file that a message may have, and what its name ends in."""
_URI_HEAD = re.compile(r"data:[\w.+/-]*(?:;[\w.=+-]+)*", re.IGNORECASE)
_KINDS = "PNG, JPEG, GIF and WebP pictures, PDF and UTF-8 text"
MOST_BYTES = 20 * 2**20


def media_type_of(data: bytes) -> str | None:
    """Return what *data* is by its content; None where it is nothing that a message may have."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"%PDF-"):
        return PDF
    try:
        return TEXT if data and "\0" not in data.decode("utf-8") else None
    except UnicodeDecodeError:
        return None


def _checked(data: bytes, what: str) -> str:
    """Return what *data* is: by its content, whatever its name says."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{what} is larger than {MOST_BYTES >> 20} MiB, the most that is sent")
    kind = media_type_of(data)
    if kind is None:
        why = "is not a kind of file that models take" if data else "is empty"
        raise UsageError(f"{what} {why}; there are: {_KINDS}")
    return kind


@value_object
class Attachment:
    """A picture or a file beside the text of a message, before its character `at`.

    Its content is the file at `path`: the one that the task named, and in a run the copy that it keeps.
    """

    media_type: str
    digest: str
    size: int
    name: str | None = None
    at: int = 0
    path: str = field(default="", compare=False, repr=False)

    @classmethod
    def of_file(cls, path: str | PurePath, *, at: int = 0) -> "Attachment":
        """Return the picture, PDF or text at *path*, before character *at* of its message."""
        file = Path(path)
        try:
            with file.open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}") from error
        return cls(
            media_type=_checked(data, str(file)),
            digest=digest_bytes(data),
            size=len(data),
            name=file.name,
            at=at,
            path=str(file.absolute()),
        )

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.media_type.startswith("image/")

    @property
    def label(self) -> str:
        """What it is, in words: `picture cat.png`."""
        kind = "picture" if self.is_image else "file"
        return f"{kind} {self.name or self.digest[:8] + SUFFIXES.get(self.media_type, '')}"

    @property
    def blob(self) -> str:
        """The name under which its content is kept."""
        return self.digest + SUFFIXES.get(self.media_type, "")

    def identity(self) -> dict[str, Json]:
        """Return what a model is shown: a picture without its name, which is not sent."""
        name = {} if self.is_image else {"name": self.name}
        return {"media_type": self.media_type, "digest": self.digest, "at": self.at, **name}

    def read(self) -> bytes:
        """Return the content, which must be what it was when the task was read."""
        if not self.path:
            raise UsageError(f"{self.label}: its content is not kept with this run")
        try:
            data = Path(self.path).read_bytes()
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from error
        if digest_bytes(data) != self.digest:
            raise UsageError(f"{self.path} is not what it was when the run was planned")
        return data

    def text(self) -> str:
        """Return the content of a text file, after a line with its name."""
        return f"{self.name or 'file'}:\n{self.read().decode('utf-8')}\n"

    def base64(self) -> str:
        """Return the content in base 64."""
        return base64.b64encode(self.read()).decode("ascii")

    def data_uri(self) -> str:
        """Return the content as a data URI."""
        return f"data:{self.media_type};base64,{self.base64()}"


@value_object
class AttachedBytes(Attachment):
    """An attachment whose content came in the message itself, and is in no file yet."""

    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, data: bytes, what: str, *, name: str | None = None, at: int = 0) -> "AttachedBytes":
        """Return *data* as an attachment; *what* it is called in an error."""
        return cls(
            media_type=_checked(data, what),
            digest=digest_bytes(data),
            size=len(data),
            name=name,
            at=at,
            data=data,
        )

    @classmethod
    def of_uri(cls, uri: str, *, name: str | None = None, at: int = 0) -> "AttachedBytes":
        """Return what is in a data URI; what it is said to be does not count."""
        head, comma, text = uri.partition(",")
        if not comma or not _URI_HEAD.fullmatch(head):
            raise UsageError(f"{uri[:40]!r} is no data URI; write data:image/png;base64,...")
        try:
            if head.lower().endswith(";base64"):
                data = base64.b64decode("".join(text.split()), validate=True)
            else:
                data = unquote_to_bytes(text)
        except ValueError as error:
            raise UsageError(f"{uri[:40]!r}: not valid base 64: {error}") from error
        return cls.of(data, f"the data URI {uri[:40]!r}", name=name, at=at)

    def read(self) -> bytes:
        """Return the content."""
        return self.data
