"""Untrusted text on a page: escaped and limited in length."""

import json
from collections.abc import Iterator, Sequence
from html import escape

from bakeoff._lib.sanitize import for_terminal
from bakeoff.core.task import Message, ToolCall
from bakeoff.stats.head_to_head import RolloutFigures, shared_verdict

_MOST_PATCH_LINES = 3_000
_MOST_LINE = 2_000
_MOST_MESSAGE = 20_000
_MOST_MESSAGES = 200
_MOST_TALK = 150_000
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


def esc(text: str) -> str:
    """Return *text* escaped for HTML, without control or direction characters."""
    return escape(for_terminal(text), quote=True)


def chip(text: str, rollouts: Sequence[RolloutFigures]) -> str:
    """Return *text* as a chip in the colour of the verdict of *rollouts*."""
    verdict = shared_verdict(rollouts)
    kind = verdict.name.lower().replace("_", "-") if verdict else "mixed" if rollouts else "not-run"
    return f'<span class="chip {kind}">{esc(text)}</span>'


def clipped(text: str, most: int) -> str:
    """Return *text*, or its beginning and end around a note on what is omitted."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - most:,} characters omitted ...]\n{text[-half:]}"


def diff(patch: str) -> str:
    """Return a patch with coloured lines."""
    lines = patch[:_MOST_PATCH].splitlines()
    shown = "".join(_diff_line(line) for line in lines[:_MOST_PATCH_LINES])
    if len(lines) > _MOST_PATCH_LINES or len(patch) > _MOST_PATCH:
        shown += '<span class="meta">[... truncated: see diff.patch ...]</span>\n'
    return f'<pre class="diff" tabindex="0">{shown}</pre>'


def _diff_line(line: str) -> str:
    kind = next((kind for start, kind in _DIFF if line.startswith(start)), None)
    text = esc(line if len(line) <= _MOST_LINE else f"{line[:_MOST_LINE]} [...]")
    return f'<span class="{kind}">{text}</span>\n' if kind else f"{text}\n"


def code(text: str, most: int = _MOST_MESSAGE) -> str:
    """Return *text* as a block that keeps its lines."""
    return f'<pre class="code" tabindex="0">{esc(clipped(text, most))}</pre>'


def conversation(messages: Sequence[Message]) -> str:
    """Return a transcript with roles, messages and tool calls."""
    shown: list[str] = []
    length = 0
    for message in messages[:_MOST_MESSAGES]:
        shown.append(_message(message))
        length += len(shown[-1])
        if length > _MOST_TALK:
            break
    if left := len(messages) - len(shown):
        shown.append(f'<p class="quiet">{left:,} more messages: see transcript.jsonl</p>')
    return f'<div class="talk">{"".join(shown)}</div>'


def _message(message: Message) -> str:
    return (
        f'<div class="turn {_ROLES.get(message.role, "other")}">'
        f'<div class="role">{esc(message.role)}</div>{"".join(_parts(message))}</div>'
    )


def _parts(message: Message) -> Iterator[str]:
    if message.reasoning:
        yield f'<div class="reasoning">{code(message.reasoning)}</div>'
    if message.content:
        yield code(message.content)
    for call in message.tool_calls:
        yield f'<div class="call"><b>{esc(call.name)}</b> {code(_arguments(call))}</div>'


def _arguments(call: ToolCall) -> str:
    """Return the arguments of a tool call; a single text, such as a command, unquoted."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return call.arguments  # a model may write what it likes
    values = list(given.values()) if isinstance(given, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else call.arguments
