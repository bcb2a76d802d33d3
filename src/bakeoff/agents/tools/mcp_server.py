"""MCP servers whose tools are offered: started or connected to for one attempt, and recorded.

A recording is a file of tools with exact rules, as a suite can write them: answering from it needs
no server and no package.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from bakeoff._lib.files import write_atomic
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.agents.tools.replies import ToolReply
from bakeoff.core.errors import AgentError, BakeoffError, UsageError
from bakeoff.core.outcome import Tool
from bakeoff.core.tools import McpServerSpec
from bakeoff.core.values import Json, same_json

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool

_MOST_LOG = 2_000


def require_mcp() -> None:
    """Raise where the package that talks to MCP servers is not installed."""
    if find_spec("mcp") is None:
        raise UsageError(
            "a task offers the tools of an MCP server, for which the package `mcp` is missing; "
            "install bakeoff[mcp], or answer from a `recording`"
        )


@asynccontextmanager
async def connected(
    spec: McpServerSpec, environ: Mapping[str, str]
) -> AsyncIterator[list["McpTool"]]:
    """Connect to the server while the block lasts, and return the tools that it offers."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            async with _client(spec, environ, log) as client:
                yield await _tools(client, spec)
        except BakeoffError:
            raise
        except BaseExceptionGroup as group:
            raise _failure(spec, _first(group), log) from group
        except Exception as error:
            raise _failure(spec, error, log) from error


def _client(spec: McpServerSpec, environ: Mapping[str, str], log: TextIO) -> "Client":
    from mcp import Client, StdioServerParameters, stdio_client

    if spec.url is not None:
        return Client(spec.url, read_timeout_seconds=spec.call_s)
    if missing := [name for name in spec.env if name not in environ]:
        raise AgentError(
            f"MCP server {spec.address!r}: the variable {missing[0]} is not set; export it"
        )
    parameters = StdioServerParameters(
        command=spec.command[0],
        args=list(spec.command[1:]),
        env={name: environ[name] for name in spec.env},
        cwd=spec.folder,
    )
    return Client(stdio_client(parameters, errlog=log), read_timeout_seconds=spec.call_s)


async def _tools(client: "Client", spec: McpServerSpec) -> list["McpTool"]:
    offered: list[ServerTool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        offered += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    names = [tool.name for tool in offered]
    wanted = names if spec.only is None else list(spec.only)
    if unknown := [name for name in wanted if name not in names]:
        raise AgentError(
            f"MCP server {spec.address!r} has no tool {unknown[0]!r}: "
            f"{did_you_mean(unknown[0], names)}"
        )
    tools = [McpTool(client, tool, spec) for tool in offered if tool.name in wanted]
    if spec.recording is not None:
        recording = ServerRecording.at(Path(spec.recording))
        for live in tools:
            recording.tool(live.tool)
        recording.save(Path(spec.recording))
    return tools


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a task group, however deep."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _failure(spec: McpServerSpec, error: BaseException, log: TextIO) -> BakeoffError:
    if isinstance(error, BakeoffError):
        return error
    log.seek(0)
    printed = log.read()[-_MOST_LOG:].strip()
    said = f"; it printed: {one_line(printed, width=500)}" if printed else ""
    why = one_line(f"{type(error).__name__}: {error}", width=300)
    return AgentError(f"MCP server {spec.address!r}: {why}{said}")


class McpTool:
    """One tool of a server that is connected."""

    answered = True

    def __init__(self, client: "Client", tool: "ServerTool", spec: McpServerSpec) -> None:
        self._client = client
        self._spec = spec
        self._answered: list[tuple[Mapping[str, Json], str]] = []
        self.tool = Tool(
            name=tool.name,
            description=well_formed(tool.description or tool.title or ""),
            parameters=tool.input_schema,
        )

    async def answer(self, arguments: Mapping[str, Json]) -> ToolReply:
        """Call the tool; the server's objection to the arguments is its answer to the model."""
        from mcp import MCPError

        try:
            result = await self._client.call_tool(self.tool.name, dict(arguments))
        except MCPError as error:
            if error.error.code != _INVALID_PARAMS:
                raise
            reply = ToolReply(text=well_formed(error.error.message), error=True)
        else:
            reply = ToolReply(text=_text(result), error=bool(result.is_error))
        if self._spec.recording is not None:
            self._record(Path(self._spec.recording), arguments, reply.text)
        return reply

    def _record(self, path: Path, arguments: Mapping[str, Json], reply: str) -> None:
        replies = [text for given, text in self._answered if same_json(given, arguments)]
        self._answered.append((arguments, reply))
        recording = ServerRecording.at(path)
        recording.add(self.tool, arguments, [*replies, reply])
        recording.save(path)


_INVALID_PARAMS = -32602  # JSON-RPC


def _text(result: "CallToolResult") -> str:
    """Return the result as text; other parts are named by their kind."""
    parts = [
        part.text if part.type == "text" else f"[{part.type} that is not shown]"
        for part in result.content
    ]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return well_formed("\n".join(parts))


class RecordedRule(msgspec.Struct, kw_only=True):
    """What was answered to calls with these arguments, in the order of one attempt."""

    when: dict[str, Json]
    exact: bool = True
    replies: list[str]


class RecordedTool(msgspec.Struct, kw_only=True):
    """A tool as the server described it, and its answers."""

    name: str
    description: str
    parameters: dict[str, Json]
    rules: list[RecordedRule]


class ServerRecording(msgspec.Struct, kw_only=True):
    """The file of a server's tools and answers; it is read, changed and written without a wait between."""

    tools: list[RecordedTool] = []

    @classmethod
    def at(cls, path: Path) -> "ServerRecording":
        """Return what is recorded in *path* so far."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.is_file() else cls()

    def tool(self, tool: Tool) -> RecordedTool:
        """Return the record of *tool*, which is new where there was none."""
        for recorded in self.tools:
            if recorded.name == tool.name:
                return recorded
        new = RecordedTool(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            rules=[],
        )
        self.tools.append(new)
        return new

    def add(self, tool: Tool, arguments: Mapping[str, Json], replies: Sequence[str]) -> None:
        """Add what an attempt was answered so far where that is more than is known."""
        rules = self.tool(tool).rules
        for rule in rules:
            if same_json(rule.when, arguments):
                rule.replies += replies[len(rule.replies) :]
                return
        rules.append(RecordedRule(when=dict(arguments), replies=list(replies)))

    def save(self, path: Path) -> None:
        """Write the file."""
        write_atomic(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
