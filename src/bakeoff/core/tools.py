"""Tools that a task offers to the model, and how calls of them are answered."""

from collections.abc import Mapping
from dataclasses import field

from bakeoff._lib.value_object import value_object
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.values import Json

DEFAULT_ROUNDS = 10


@value_object
class ToolRule:
    """The replies to calls with the arguments `when`, in order; the last one repeats.

    Further arguments are free, unless it is `exact`.
    """

    when: Mapping[str, Json] = field(default_factory=dict)
    replies: tuple[Json, ...] = ()
    exact: bool = False

    def identity(self) -> dict[str, Json]:
        """Return what the rule says."""
        return {"when": dict(self.when), "replies": list(self.replies), "exact": self.exact}


@value_object
class ToolSpec:
    """A tool, and what answers a call: the first fitting rule, else `function`, else `replies`.

    One with none of them is offered, and a call of it ends the answer. `function` is `module:attr`;
    a tool that is not `trusted` was named by a suite, which may not run Python by itself.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    replies: tuple[Json, ...] = ()
    rules: tuple[ToolRule, ...] = ()
    function: str | None = None
    origin: SourceLocation | None = field(default=None, compare=False, repr=False)
    trusted: bool = field(default=True, compare=False, repr=False)

    @property
    def answered(self) -> bool:
        """Whether anything answers a call of this tool."""
        return bool(self.replies or self.rules or self.function)

    def identity(self) -> dict[str, Json]:
        """Return what the tool is and answers."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "replies": list(self.replies),
            "rules": [rule.identity() for rule in self.rules],
            "function": self.function,
        }


@value_object
class McpServerSpec:
    """An MCP server that offers its tools: a `command` that is started for each attempt, or a `url`.

    `only` are the tools that are offered; None is all. `env` names the variables that the command
    gets beside the usual ones. Its answers are written to the file `recording`, where one is named.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    only: tuple[str, ...] | None = None
    env: tuple[str, ...] = ()
    folder: str | None = field(default=None, compare=False)
    recording: str | None = field(default=None, compare=False)
    call_s: float = 60.0
    origin: SourceLocation | None = field(default=None, compare=False, repr=False)
    trusted: bool = field(default=True, compare=False, repr=False)

    @property
    def address(self) -> str:
        """The command that is started, or the URL."""
        return self.url or " ".join(self.command)

    def identity(self) -> dict[str, Json]:
        """Return which server it is; where it lies and what it records are not part of that."""
        return {
            "command": list(self.command),
            "url": self.url,
            "only": None if self.only is None else list(self.only),
            "env": list(self.env),
            "call_s": self.call_s,
        }


@value_object
class TaskTools:
    """The tools of a task; `rounds` is how often in a turn calls are answered at most."""

    tools: tuple[ToolSpec, ...] = ()
    servers: tuple[McpServerSpec, ...] = ()
    rounds: int = DEFAULT_ROUNDS

    def identity(self) -> dict[str, Json]:
        """Return what makes these tools these and no others."""
        return {
            "tools": [tool.identity() for tool in self.tools],
            "servers": [server.identity() for server in self.servers],
            "rounds": self.rounds,
        }
