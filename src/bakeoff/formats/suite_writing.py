"""Tasks of a run written as a JSON suite again, which asks and scores exactly as they did."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bakeoff._lib.files import make_folder, write_atomic
from bakeoff.core.attachment import Attachment
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, ScorerSpec, Task, Turn
from bakeoff.core.tools import TaskTools, ToolSpec
from bakeoff.core.values import Json
from bakeoff.formats.suite import read_suite

_TIME_LIMIT = "timeout_seconds"  # among the metadata of a test


def write_suite(path: Path, tasks: Sequence[Task], *, name: str) -> None:
    """Write *tasks* to *path*, and check that what is read there is the same tasks.

    Pictures and files go into a folder beside it.
    """
    if path.exists():
        raise UsageError(f"{path} is there already; choose another name, or remove it")
    if path.suffix != ".json":
        raise UsageError(f"{path}: a suite is a .json file; write {path.with_suffix('.json')}")
    for task in tasks:
        if why := _cannot_be_written(task):
            raise UsageError(
                f"task {task.id!r} cannot be written as a suite: {why}; run the group from its own "
                "source with: bakeoff run SOURCE --test ID --test ID ..."
            )
    files = _Files(path)
    suite = {
        "suite_info": {"name": name},
        "literal": True,  # variables are filled in already
        "tests": [_test(task, files) for task in tasks],
    }
    try:
        files.write()
        write_atomic(path, msgspec.json.format(msgspec.json.encode(suite), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    _check(path, tasks)


def _check(path: Path, tasks: Sequence[Task]) -> None:
    """Raise where the suite at *path* does not hold just these tasks."""
    read = {task.id: task.digest for task in read_suite(path).tasks}
    if other := [task.id for task in tasks if read.get(task.id) != task.digest]:
        raise UsageError(
            f"{path} was written, but {len(other)} of its tasks are not what the run asked, {other[0]!r} "
            "first: a file beside it (metadata, categories) changes them; write it into another folder"
        )


def _cannot_be_written(task: Task) -> str | None:
    if task.workspace is not None:
        return "it has files to work on"
    if task.dialogue is not None:
        return "it is a dialogue"
    if task.trouble is not None:
        return f"it cannot be run: {task.trouble}"
    if task.tools is not None and any(server.command for server in task.tools.servers):
        return "its tools come from a program beside its own file"
    if any(m.tool_calls or m.tool_call_id is not None for m in task.messages):
        return "its messages have calls of tools in them"
    return None


class _Files:
    """The pictures and files of a suite, in a folder beside it."""

    def __init__(self, suite: Path) -> None:
        self._suite = suite
        self._contents: dict[str, bytes] = {}

    def add(self, attachment: Attachment) -> str:
        """Return the path of *attachment* as the suite names it."""
        # a picture has no name of its own; a file is sent with its name
        own = attachment.blob if attachment.is_image or not attachment.name else attachment.name
        name = f"{self._suite.stem}.files/{attachment.digest[:12]}/{Path(own).name}"
        self._contents[name] = attachment.read()
        return name

    def write(self) -> None:
        for name, data in self._contents.items():
            file = self._suite.parent / name
            make_folder(file.parent)
            write_atomic(file, data)


def _test(task: Task, files: _Files) -> dict[str, Json]:
    """Return *task* as a test of a suite, without what is as it is by default."""
    metadata = {key: value for key, value in task.metadata.items() if key != _TIME_LIMIT}
    if task.time_s is not None:
        metadata[_TIME_LIMIT] = task.time_s
    optional: dict[str, Json] = {
        "name": task.name,
        "category": task.category,
        "group": task.group,
        "api_type": task.api_type,
        "vars": dict(task.vars) or None,
        "parameters": dict(task.parameters) or None,
        "expected": task.target,
        "metadata": metadata or None,
        "pass_threshold": None if task.pass_threshold == 1 else task.pass_threshold,
        **_tools(task.tools),
        **_asked(task, files),
    }
    given = {key: value for key, value in optional.items() if value is not None}
    return {"id": task.id, **given, "scorers": _scorers(task.scorers, turn=None)}


def _asked(task: Task, files: _Files) -> dict[str, Json]:
    if task.turns:
        before = [_message(message, files) for message in task.messages[:-1]]
        turns: list[Json] = [
            _turn(turn, _scorers(task.scorers, turn=number), files)
            for number, turn in enumerate(task.turns, 1)
        ]
        return {"messages": before or None, "turns": turns}
    if not task.messages:
        return {"prompt": task.prompt}
    only = task.messages[0]
    if len(task.messages) == 1 and only.role == "user" and not only.attachments and not task.prompt:
        return {"prompt": only.content}
    return {"prompt": task.prompt, "messages": [_message(m, files) for m in task.messages]}


def _message(message: Message, files: _Files) -> dict[str, Json]:
    if not message.attachments:
        return {"role": message.role, "content": message.content}
    return {"role": message.role, "content": list(_parts(message, files))}


def _parts(message: Message, files: _Files) -> Iterator[Json]:
    """Yield the text of *message*, with its files where they stand in it."""
    taken = 0
    for attachment in sorted(message.attachments, key=lambda each: each.at):
        if attachment.at > taken:
            yield {"text": message.content[taken : attachment.at]}
            taken = attachment.at
        yield {"image" if attachment.is_image else "file": files.add(attachment)}
    if rest := message.content[taken:]:
        yield {"text": rest}


def _turn(turn: Turn, scorers: list[Json], files: _Files) -> dict[str, Json]:
    shown: list[Json] = [files.add(attachment) for attachment in turn.attachments]
    return {
        "say": turn.say,
        "expect": turn.expect,
        "scorers": scorers,
        **({"files": shown} if shown else {}),
        **({"stop_on_failure": True} if turn.stop_on_failure else {}),
    }


def _scorers(specs: Sequence[ScorerSpec], *, turn: int | None) -> list[Json]:
    return [
        spec.name
        if spec.weight == 1 and not spec.settings
        else {"scorer": spec.name, "weight": spec.weight, "settings": dict(spec.settings)}
        for spec in specs
        if spec.turn == turn
    ]


def _tools(tools: TaskTools | None) -> dict[str, Json]:
    if tools is None:
        return {}
    servers: list[Json] = [
        {
            "url": server.url,
            "call_s": server.call_s,
            **({} if server.only is None else {"only": list(server.only)}),
            **({"env": list(server.env)} if server.env else {}),
        }
        for server in tools.servers
    ]
    return {"tools": [*map(_tool, tools.tools), *servers], "tool_rounds": tools.rounds}


def _tool(tool: ToolSpec) -> dict[str, Json]:
    rules: list[Json] = [
        {"when": dict(rule.when), "replies": list(rule.replies), "exact": rule.exact}
        for rule in tool.rules
    ]
    optional: Mapping[str, Json] = {
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "replies": list(tool.replies),
        "rules": rules,
        "function": tool.function,
    }
    return {"name": tool.name, **{key: value for key, value in optional.items() if value}}
