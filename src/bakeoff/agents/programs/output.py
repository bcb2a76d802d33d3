"""One run of an external program in a workspace: its placeholders, its output, and how it ended."""

import codecs
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from bakeoff._lib.sanitize import well_formed
from bakeoff.agents.programs.catalog import MODEL, Final
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import AgentError, SandboxError, TrialError
from bakeoff.core.outcome import Journal, Outcome
from bakeoff.core.ports import Context, ModelAccess
from bakeoff.core.sandbox import Box, Command, CommandResult
from bakeoff.core.task import Task
from bakeoff.core.values import Json

FIELDS = ("instruction", "instruction_file", "gateway", "token", "model", "home")

_FIELD = re.compile(r"\{(" + "|".join(FIELDS) + r")\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return *text* with each placeholder replaced; other braces are left unchanged."""
    return _FIELD.sub(lambda match: values[match[1]], text)


def fill_all(texts: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Fill every text."""
    return tuple(fill(text, values) for text in texts)


def final_message(output: str, final: Final) -> str | None:
    """Return the text of the last matching event in *output*; None if there is none."""
    for line in reversed(output.splitlines()):
        event = _event(line)
        if event is not None and all(_at(event, k) == v for k, v in final.event.items()):
            text = _at(event, final.text)
            if isinstance(text, str):
                return text
    return None


def _event(line: str) -> Mapping[str, Json] | None:
    if not line.startswith("{"):
        return None  # a warning, or the rest of a truncated line
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _at(event: Json, path: str) -> Json:
    for key in path.split("."):
        if not isinstance(event, Mapping):
            return None
        event = event.get(key)
    return event


_INSTRUCTION = ".bakeoff/instruction.md"
_WRITE_S = 60.0
_LAST_LINES = 15


@dataclass(frozen=True, kw_only=True)
class ProgramCall:
    """A program to run; its texts may contain placeholders.

    `asks` says that it needs its model: if it never had an answer, it did not really run.
    """

    name: str
    argv: tuple[str, ...]
    instruction: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    temporary_files: tuple[str, ...] = ()
    final: Final | None = None
    version: str | None = None
    asks: bool = True


def instruction_of(task: Task) -> str:
    """Return the instruction for a program: the messages of the task, joined."""
    return "\n\n".join(message.content for message in task.messages)


async def run(call: ProgramCall, task: Task, context: Context) -> Outcome:
    """Run the program until it ends, and return its outcome."""
    workspace = workspace_of(task, call.name)
    if context.workspace is None:
        raise SandboxError(f"agent {call.name!r} was given no box to work in")
    box, access, journal = context.workspace.box, context.model_access, context.journal or Journal()
    if access is None or box.gateway_url is None:
        raise SandboxError(f"agent {call.name!r} needs the model gateway, and this box has none")
    values = {"gateway": box.gateway_url, "token": access.token, "model": MODEL}
    values |= {"instruction": well_formed(call.instruction)}
    values |= {"home": await _write(box, _INSTRUCTION, values["instruction"])}
    values |= {"instruction_file": f"{values['home']}/{_INSTRUCTION}"}
    for path, text in call.files.items():
        await _write(box, path, fill(text, values))
    messages_before = len(journal.messages)
    ran = await box.run(
        Command(
            argv=fill_all(call.argv, values),
            cwd=workspace.start,
            environment={name: fill(text, values) for name, text in call.environment.items()},
            stdin=values["instruction"].encode(),
            on_output=_log_listener(journal),
        )
    )
    await _remove_files(box, call.temporary_files, workspace.start)
    answered = any(m.role == "assistant" for m in journal.messages[messages_before:])
    _check_end(call, ran, access, answered=answered)
    return _outcome(call, ran, access, journal)


async def _write(box: Box, path: str, text: str) -> str:
    """Write a file to the home of the box, and return the path of that home."""
    folder = shlex.quote(PurePosixPath(path).parent.as_posix())
    script = f'cd "$HOME" && mkdir -p {folder} && cat > {shlex.quote(path)} && pwd'
    written = Command(argv=("sh", "-c", script), cwd="/", stdin=text.encode(), time_s=_WRITE_S)
    ran = await box.run(written)
    if ran.code != 0:
        reason = ran.stopped or ran.output.strip() or f"exit {ran.code}"
        raise SandboxError(f"{path} cannot be written in the home of the box: {reason}")
    return ran.output.strip()


async def _remove_files(box: Box, temporary_files: tuple[str, ...], start: str) -> None:
    if temporary_files:  # our own patterns, which the shell may expand
        await box.run(
            Command(argv=("sh", "-c", f"rm -rf -- {' '.join(temporary_files)}"), cwd=start)
        )


def _log_listener(journal: Journal) -> Callable[[bytes], None]:
    """Return a listener that decodes output into the log, also characters split between chunks."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda piece: journal.write_log(decoder.decode(piece))


def _check_end(
    call: ProgramCall, ran: CommandResult, access: ModelAccess, *, answered: bool
) -> None:
    """Raise where the program's end says nothing about the candidate.

    A program without any answer of its model is a fault, whatever its exit code. One that was
    answered and then failed counts, unless it failed because the endpoint became unavailable.
    """
    fault, failed = access.fault, ran.code != 0
    if isinstance(fault, TrialError) and failed and (fault.transient or not answered):
        raise fault
    if answered or not (failed or call.asks):
        return
    if isinstance(fault, TrialError):
        raise fault
    how = f"ended with {_end(ran)} and never had an answer of its model"
    raise AgentError(f"{call.name} {how}; the end of its log:\n{_last_lines(ran.output)}")


def _outcome(
    call: ProgramCall, ran: CommandResult, access: ModelAccess, journal: Journal
) -> Outcome:
    answer = final_message(ran.output, call.final) if call.final else None
    if answer is None:
        replies = (m.content for m in reversed(journal.messages) if m.role == "assistant")
        answer = next((text for text in replies if text), "")
    notes = {"exit_code": ran.code, "version": call.version}
    unanswered = {} if access.fault is None else {"last_question": str(access.fault)}
    return Outcome(
        answer=well_formed(answer),
        transcript=tuple(journal.messages),
        stop_reason=None if ran.code == 0 else _end(ran),
        notes={**notes, **unanswered},
        log=journal.log,
        interventions=journal.interventions,
    )


def _end(ran: CommandResult) -> str:
    return f"exit {ran.code}" if ran.stopped is None else f"stopped: {ran.stopped}"


def _last_lines(output: str) -> str:
    return "\n".join(line[:500] for line in output.splitlines()[-_LAST_LINES:]) or "(nothing)"
