"""Tools that a test offers, as suites and run files write them."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.tools import DEFAULT_ROUNDS, McpServerSpec, TaskTools, ToolRule, ToolSpec
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in, shown

Rounds = Annotated[int, Meta(ge=1)]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FUNCTION = re.compile(r"[\w./-]+:[A-Za-z_]\w*")


class ToolRuleTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The reply to a call with the arguments `when`; further ones are free unless it is `exact`."""

    when: dict[str, Json] = {}
    reply: Json = None
    replies: list[Json] | None = None
    exact: bool = False


class ToolTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A tool that the model may call: `name`, `description`, and a JSON Schema of its arguments.

    A call is answered by the first of `rules` that fits, else by `function` (`module:attr`), else by
    `reply` or by `replies` in order, of which the last repeats. Without any, a call is the answer.
    With `command` or `url` it is an MCP server, whose tools are offered: all, or `only` some. Where the
    file `recording` is there, they are answered from it; where it is not, it is made.
    """

    name: str | None = None
    description: str = ""
    parameters: dict[str, Json] = {}
    reply: Json = None
    replies: list[Json] | None = None
    rules: list[ToolRuleTable] = []
    function: str | None = None
    command: list[str] | str | None = None
    url: str | None = None
    only: list[str] | None = None
    env: list[str] = []
    recording: str | None = None
    call_s: Annotated[float, Meta(gt=0)] = 60.0


class ToolRecording(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The tools of an MCP server with what it answered: the file that `recording` names."""

    tools: list[ToolTable]


@value_object
class _Place:
    """The test whose tools are read, where they stand, and whether whoever wrote them is trusted."""

    what: str
    at: SourceLocation
    trusted: bool

    def inside(self, *key: str | int) -> "_Place":
        return replace(self, at=self.at.inside(*key))

    def wrong(self, why: str) -> UsageError:
        return UsageError(f"{shown(self.at)}: {self.what}: {why}")


def task_tools(
    entries: Sequence[ToolTable] | None,
    rounds: int | None,
    *,
    at: SourceLocation,
    what: str,
    trusted: bool = True,
) -> TaskTools | None:
    """Return the tools of the test *what*, which stands *at* a place; None where it has none.

    Tools of a suite are not *trusted*: it may come from somebody else.
    """
    place = _Place(what=what, at=at, trusted=trusted)
    if not entries:
        if rounds is not None:
            raise place.inside("tool_rounds").wrong("`tool_rounds` is for tests with `tools`")
        return None
    tools: list[ToolSpec] = []
    servers: list[McpServerSpec] = []
    for number, entry in enumerate(entries):
        here = place.inside("tools", number)
        if _is_server(entry):
            recorded = _recorded(entry, here)
            tools += recorded or ()
            servers += [] if recorded is not None else [_server(entry, here)]
        else:
            tools.append(_tool(entry, here))
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise place.inside("tools").wrong(f"two tools are called {twice!r}; rename one")
    return TaskTools(
        tools=tuple(tools),
        servers=tuple(servers),
        rounds=DEFAULT_ROUNDS if rounds is None else rounds,
    )


def refuse_tools_twice(
    tools: TaskTools | None, parameters: Mapping[str, Json], *, at: SourceLocation, what: str
) -> None:
    """Raise where a test offers *tools*, and others by the API's own parameter."""
    if tools is not None and "tools" in parameters:
        raise UsageError(
            f"{shown(at.inside('parameters', 'tools'))}: {what}: it has `tools` and `parameters.tools`; "
            "write all of them as `tools`, which every API is sent in its own form"
        )


def _is_server(entry: ToolTable) -> bool:
    return not (entry.command is None and entry.url is None and entry.recording is None)


def _tool(entry: ToolTable, place: _Place) -> ToolSpec:
    if entry.name is None or not _NAME.fullmatch(entry.name):
        raise place.wrong(
            f"a tool called {entry.name!r}; every API takes a `name` of 1 to 64 letters, digits, - and _"
            if entry.name is not None
            else "a tool needs a `name`, or a `command` or `url` where it is an MCP server"
        )
    if misplaced := [key for key in ("only", "env") if getattr(entry, key)]:
        raise place.wrong(f"`{misplaced[0]}` is for an MCP server, with `command` or `url`")
    if entry.function is not None and not _FUNCTION.fullmatch(entry.function):
        raise place.inside("function").wrong(
            f"`function` is {entry.function!r}; write `module:attr`, such as 'my_tools:weather'"
        )
    _check_parameters(entry.parameters, place.inside("parameters"))
    return ToolSpec(
        name=entry.name,
        description=entry.description,
        parameters=entry.parameters,
        replies=_replies(entry, place),
        rules=tuple(_rule(r, place.inside("rules", n)) for n, r in enumerate(entry.rules)),
        function=entry.function,
        origin=place.at,
        trusted=place.trusted,
    )


def _rule(entry: ToolRuleTable, place: _Place) -> ToolRule:
    replies = _replies(entry, place)
    if not replies:
        raise place.wrong("a rule needs a `reply`, or `replies`")
    return ToolRule(when=entry.when, replies=replies, exact=entry.exact)


def _replies(entry: ToolTable | ToolRuleTable, place: _Place) -> tuple[Json, ...]:
    if entry.reply is not None and entry.replies is not None:
        raise place.wrong("write either `reply` or `replies`")
    if entry.replies is not None and not entry.replies:
        raise place.inside("replies").wrong("`replies` is empty; write one at least")
    return tuple(entry.replies or ()) if entry.reply is None else (entry.reply,)


def _check_parameters(schema: Mapping[str, Json], place: _Place) -> None:
    """Refuse a schema that no API takes: each wants that of an object."""
    if not schema:
        return
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        raise place.wrong(
            f"`parameters` is not a JSON schema: {one_line(error.message)}"
        ) from error
    if schema.get("type") != "object":
        raise place.wrong(
            'the arguments of a tool are an object: write {"type": "object", "properties": ...}'
        )


def _server(entry: ToolTable, place: _Place) -> McpServerSpec:
    if entry.command is not None and entry.url is not None:
        raise place.wrong("write either `command` or `url`")
    command = shlex.split(entry.command) if isinstance(entry.command, str) else entry.command
    if entry.url is None and not command:
        why = "there is no such recording, and no `command` or `url` of an MCP server to record"
        raise place.inside("recording").wrong(f"{entry.recording}: {why}")
    if entry.url is not None and not entry.url.startswith(("http://", "https://")):
        raise place.inside("url").wrong(
            f"`url` is {entry.url!r}; it begins with https:// or http://"
        )
    _refuse_tool_keys(entry, place)
    folder = Path(place.at.file).parent
    return McpServerSpec(
        command=tuple(command or ()),
        url=entry.url,
        only=None if entry.only is None else tuple(entry.only),
        env=tuple(entry.env),
        folder=str(folder.resolve()),
        recording=None if entry.recording is None else str((folder / entry.recording).resolve()),
        call_s=entry.call_s,
        origin=place.at,
        trusted=place.trusted,
    )


def _refuse_tool_keys(entry: ToolTable, place: _Place) -> None:
    for key in ("name", "description", "parameters", "reply", "replies", "rules", "function"):
        if getattr(entry, key):
            raise place.wrong(f"an MCP server describes and answers its tools itself: drop `{key}`")


def _recorded(entry: ToolTable, place: _Place) -> list[ToolSpec] | None:
    """Return the tools that are recorded in the file that *entry* names; None where it is not there."""
    path = Path(place.at.file).parent / (entry.recording or "")
    if entry.recording is None or not path.is_file():
        return None
    _refuse_tool_keys(entry, place)
    data, _ = read_json(path)
    recording = convert(data, ToolRecording, source=str(path), line_of=partial(line_in, path))
    inner = _Place(what=place.what, at=SourceLocation(file=str(path)), trusted=place.trusted)
    tools = [
        _tool(tool, inner.inside("tools", number)) for number, tool in enumerate(recording.tools)
    ]
    if entry.only is None:
        return tools
    names = [tool.name for tool in tools]
    if missing := [name for name in entry.only if name not in names]:
        raise place.inside("only").wrong(
            f"{path} has no tool {missing[0]!r}: {did_you_mean(missing[0], names)}"
        )
    return [tool for tool in tools if tool.name in entry.only]
