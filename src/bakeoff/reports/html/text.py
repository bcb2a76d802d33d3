"""Untrusted text cut to what a page can show: messages, changes, conversations."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence

from bakeoff._lib.value_object import value_object
from bakeoff.core.attachment import Attachment, media_type_of
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.tools import TaskTools
from bakeoff.core.values import Json
from bakeoff.stats.head_to_head import RolloutFigures, shared_verdict

_MOST_PATCH_LINES = 3_000
_MOST_LINE = 2_000
MOST_MESSAGE = 20_000
_MOST_MESSAGES = 200
_MOST_TALK = 150_000
_MOST_PICTURE = 2**19  # bytes
_MOST_PATCH = 250_000

_DIFF = (
    ("diff --git ", "file"),
    ("index ", "meta"),
    ("new file", "meta"),
    ("deleted file", "meta"),
    ("similarity ", "meta"),
    ("rename ", "meta"),
    ("--- ", "meta"),
    ("+++ ", "meta"),
    ("@@", "hunk"),
    ("+", "add"),
    ("-", "del"),
)
_ROLES = {"assistant": "assistant", "tool": "tool", "user": "user", "system": "system"}


def verdict_kind(rollouts: Sequence[RolloutFigures]) -> str:
    """Return the style class of the verdict that *rollouts* share."""
    verdict = shared_verdict(rollouts)
    return verdict.name.lower().replace("_", "-") if verdict else "mixed" if rollouts else "not-run"


def clipped(text: str, most: int = MOST_MESSAGE) -> str:
    """Return *text*, or its beginning and end around a note on what is omitted."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - most:,} characters omitted ...]\n{text[-half:]}"


@value_object
class DiffLine:
    """A line of a patch; `kind` is its style class, empty for context."""

    text: str
    kind: str


@value_object
class Diff:
    """The lines of a patch, and whether it goes on beyond them."""

    lines: tuple[DiffLine, ...]
    is_cut: bool


def diff(patch: str) -> Diff:
    """Return the lines of a patch that are shown, each with its kind."""
    lines = patch[:_MOST_PATCH].splitlines()
    return Diff(
        lines=tuple(map(_diff_line, lines[:_MOST_PATCH_LINES])),
        is_cut=len(lines) > _MOST_PATCH_LINES or len(patch) > _MOST_PATCH,
    )


def _diff_line(line: str) -> DiffLine:
    kind = next((kind for start, kind in _DIFF if line.startswith(start)), "")
    return DiffLine(
        text=line if len(line) <= _MOST_LINE else f"{line[:_MOST_LINE]} [...]", kind=kind
    )


@value_object
class ShownMessage:
    """One message of a conversation, as a page shows it."""

    kind: str
    speaker: str
    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    files: tuple["Shown", ...] = ()


@value_object
class Shown:
    """A picture, as the data URI of a page that needs no other file; of any other file, its `words`."""

    words: str
    uri: str | None = None


@value_object
class Conversation:
    """The messages that are shown, and how many more there are."""

    messages: tuple[ShownMessage, ...]
    left: int


def conversation(messages: Sequence[Message], *, most: int = _MOST_TALK) -> Conversation:
    """Return a transcript with roles, messages and tool calls, up to *most* characters."""
    shown: list[ShownMessage] = []
    length = 0
    for message in messages[:_MOST_MESSAGES]:
        said = _said(message)
        shown.append(said)
        length += len(said.content) + len(said.reasoning) + sum(len(a) for _, a in said.calls)
        if length > most:
            break
    return Conversation(messages=tuple(shown), left=len(messages) - len(shown))


def _said(message: Message) -> ShownMessage:
    answers = "" if message.tool_call_id is None else f" answers {message.tool_call_id}"
    return ShownMessage(
        kind=_ROLES.get(message.role, "other"),
        speaker=f"{message.role}{answers}",
        reasoning=clipped(message.reasoning or ""),
        content=clipped(message.described),
        calls=tuple((call.name, clipped(_arguments(call))) for call in message.tool_calls),
        files=tuple(map(_shown, message.attachments)),
    )


def _shown(attachment: Attachment) -> Shown:
    """Return a picture that a page can hold; what only says that it is one is not shown."""
    words = f"{attachment.label}, {attachment.media_type}, {attachment.size:,} bytes"
    if not attachment.is_image or attachment.size > _MOST_PICTURE:
        return Shown(words=f"{words}: see blobs/{attachment.blob}")
    try:
        data = attachment.read()
    except UsageError as error:
        return Shown(words=f"{words}: {error}")
    kind = media_type_of(data)
    if kind is None or kind != attachment.media_type:
        return Shown(words=f"{words}: its content does not match its type")
    return Shown(words=words, uri=f"data:{kind};base64,{b64encode(data).decode('ascii')}")


def _arguments(call: ToolCall) -> str:
    """Return the arguments of a tool call; a single text, such as a command, unquoted."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return call.arguments  # a model may write what it likes
    values = list(given.values()) if isinstance(given, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else call.arguments


def without(values: Mapping[str, Json], name: str) -> dict[str, Json]:
    """Return *values* without one of them, and without what is empty."""
    return {k: v for k, v in values.items() if k != name and v not in (None, "", [], {})}


def as_json(value: object) -> str:
    """Return plain data as indented JSON, cut to what a page can show."""
    return clipped(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def tool_names(tools: TaskTools) -> str:
    """Return the names of the tools that a task offers."""
    servers = [f"those of {server.address}" for server in tools.servers]
    return ", ".join([*(tool.name for tool in tools.tools), *servers])
