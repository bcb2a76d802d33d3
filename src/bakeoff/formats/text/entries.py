"""What several formats share: scorers and messages as people write them, placeholders, parameters."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from bakeoff._lib.decode_errors import explain_decode_error
from bakeoff._lib.phrasing import did_you_mean, near
from bakeoff.core.candidate import EndpointLimits
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.formats.attachments import content_of
from bakeoff.formats.text.convert import dotted
from bakeoff.formats.text.locate import shown
from bakeoff.formats.text.problems import Problems
from bakeoff.formats.text.template import compiled, is_template


class ScorerTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A scorer with more than its name."""

    scorer: str
    weight: Annotated[float, Meta(ge=0)] = 1.0
    settings: dict[str, Json] = {}


class MessageTable(msgspec.Struct, kw_only=True):
    """A message; content is text, or parts: `{"text": ...}`, `{"image": path}`, `{"file": path}`.

    A path starts at the folder of the file, and does not lead out of it; a data URI stands for itself.
    """

    role: str
    content: str | list[dict[str, Json]]


class EndpointTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What may be asked at most of all models at an endpoint together.

    `adaptive` is whether it is asked by as many at once as make it faster.
    """

    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    rpm: Annotated[float, Meta(gt=0)] | None = None
    tpm: Annotated[float, Meta(gt=0)] | None = None
    adaptive: bool = True


Endpoints = dict[str, EndpointTable]
"""Limits of whole endpoints: by URL, or by the name of a provider for each of its addresses."""

ScorerEntry = str | ScorerTable


def endpoint_limits(endpoints: Endpoints | None) -> dict[str, EndpointLimits]:
    """Return the limits that the tables make."""
    return {
        name: EndpointLimits(**msgspec.structs.asdict(table))
        for name, table in (endpoints or {}).items()
    }


def scorer_specs(
    entries: Sequence[ScorerEntry], *, at: SourceLocation, trusted: bool = True
) -> tuple[ScorerSpec, ...]:
    """Return the scorers that *entries* name, a list that stands *at* this place.

    Scorers named in a suite are not *trusted*: the suite may come from somebody else.
    """
    return tuple(
        replace(_scorer_spec(entry, at.inside(number)), trusted=trusted)
        for number, entry in enumerate(entries)
    )


def _scorer_spec(entry: ScorerEntry, at: SourceLocation) -> ScorerSpec:
    if isinstance(entry, str):
        return ScorerSpec(name=entry, origin=at)
    return ScorerSpec(name=entry.scorer, settings=entry.settings, weight=entry.weight, origin=at)


def conversation(
    prompt: str | None,
    messages: Sequence[MessageTable] | None,
    *,
    what: str,
    at: SourceLocation,
    unknown: Iterable[str] = (),
    values: Mapping[str, Json] | None = None,
) -> tuple[Message, ...]:
    """Return the messages of a task with a prompt, messages or both, which stands *at* a place.

    Where both are there, `prompt_beside` is what to send to an API that takes one text. *unknown*
    are keys of the task that mean nothing; one of them may be misspelt. A task with *values* may
    have neither: then the prompts of the run ask for it.
    """
    if prompt is None and messages is None and values:
        return ()
    if prompt is None and messages is None:
        why = f"write either `prompt` or `messages`{_misspelt(unknown)}"
        raise _wrong(at, what, why)
    if messages is None:
        return (Message(role="user", content=prompt or ""),)
    if not messages:
        raise _wrong(at.inside("messages"), what, "`messages` is empty; write one at least")
    return tuple(_message(m, what, at.inside("messages", n)) for n, m in enumerate(messages))


def prompt_beside(prompt: str | None, messages: Sequence[Message]) -> str | None:
    """Return the *prompt* of a task where its *messages* are not that very text; it may be None."""
    blank = not (prompt and prompt.strip())
    return None if blank or [m.content for m in messages] == [prompt] else prompt


def prompts_that_differ(tasks: Sequence[Task], at: SourceLocation) -> Iterator[str]:
    """Yield a note where some *tasks*, a list *at* this place, ask two things at once."""
    differing = [number for number, task in enumerate(tasks) if _differs(task)]
    if differing:
        first = tasks[differing[0]].id
        many = len(differing)
        which = f"{first!r} asks" if many == 1 else f"{many} tasks, {first!r} first, ask"
        where = shown(at.inside(differing[0], "prompt"))
        yield (
            f"{where}: {which} one thing by `prompt` and another by `messages`: "
            "a chat API is sent `messages`, a completions API `prompt`"
        )


def _differs(task: Task) -> bool:
    asked = [(message.role, message.content.strip()) for message in task.messages]
    return task.prompt is not None and asked != [("user", task.prompt.strip())]


def _wrong(at: SourceLocation, what: str, why: str) -> UsageError:
    return UsageError(f"{shown(at)}: {what}: {why}")


@contextmanager
def about_entry(at: SourceLocation, what: str) -> Iterator[None]:
    """Say *at* which place a mistake is, and of *what*."""
    try:
        yield
    except UsageError as error:
        raise _wrong(at, what, str(error)) from error


def _misspelt(unknown: Iterable[str]) -> str:
    """Return a hint at the key of a task that was meant for what it asks."""
    pairs = ((key, near(key, ("prompt", "messages"))) for key in unknown)
    hints = (f"; did you mean `{meant}` by {key!r}?" for key, meant in pairs if meant)
    return next(hints, "")


def _message(entry: MessageTable, what: str, at: SourceLocation) -> Message:
    if isinstance(entry.content, str):
        return Message(role=entry.role, content=entry.content)
    with about_entry(at.inside("content"), what):
        text, attached = content_of(entry.content, at)
    if attached and entry.role != "user":
        raise _wrong(
            at.inside("content"), what, "pictures and files belong in a message of the user"
        )
    return Message(role=entry.role, content=text, attachments=attached)


def default_scorers(target: Json, *, at: SourceLocation) -> tuple[ScorerSpec, ...]:
    """Return how an answer is checked where a target is given *at* a place and no scorer named."""
    if target is None:
        return ()
    if isinstance(target, str):  # nearly always
        return (ScorerSpec(name="includes", origin=at),)
    if isinstance(target, Mapping):
        return (ScorerSpec(name="json", origin=at),)
    number = isinstance(target, int | float) and not isinstance(target, bool)
    return (ScorerSpec(name="numeric" if number else "includes", origin=at),)


class RubricFields(Protocol):
    """One criterion of a grade, whatever file it is written in."""

    id: str
    criterion: str
    weight: float
    evaluation_criteria: Json


def rubric_entry(rubric: RubricFields) -> dict[str, Json]:
    """Return *rubric* as the scorer `rubrics` takes it."""
    entry: dict[str, Json] = {
        "id": rubric.id,
        "criterion": rubric.criterion,
        "weight": rubric.weight,
    }
    if rubric.evaluation_criteria is not None:
        entry["evaluation_criteria"] = rubric.evaluation_criteria
    return entry


# --- placeholders ---------------------------------------------------------------------------------


_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")
_NOT_VARS = "variables"  # what some other tools call `vars`


def filled_in(task: Task, at: SourceLocation) -> Task:
    """Return *task*, which stands *at* a place, with its `vars` filled into its texts."""
    texts = [message.content for message in task.messages]
    says = [turn.say for turn in task.turns]
    if not task.vars or not any(map(is_template, (*texts, *says, task.prompt or ""))):
        return task

    def rendered(text: str) -> str:
        return compiled(text).render(task.vars)

    try:
        return replace(
            task,
            messages=tuple(message.rewritten(rendered) for message in task.messages),
            prompt=None if task.prompt is None else rendered(task.prompt),
            turns=tuple(replace(turn, say=rendered(turn.say)) for turn in task.turns),
        )
    except UsageError as error:
        raise _wrong(at, f"test {task.id!r}", str(error)) from error


def misnamed_variables(data: Mapping[str, Json]) -> set[str]:
    """Return the names that a test or a suite gives values to under the key of other tools."""
    table = data.get(_NOT_VARS) if data else None
    return set(map(str, table)) if isinstance(table, Mapping) else set()


def refuse_misnamed(task: Task, variables: Collection[str], at: SourceLocation) -> None:
    """Raise where *task* waits for one of *variables*, which stand under a key that is not read."""
    for name in _names(task) if variables else ():
        if name.partition(".")[0] in variables:
            raise UsageError(
                f"{shown(at)}: test {task.id!r}: {{{{{name}}}}} would not be filled in: write "
                f"`{_NOT_VARS}` as `vars`, or `literal: true` to send it unchanged"
            )


def placeholder_notes(
    tasks: Sequence[Task], literal: Collection[str], at: SourceLocation
) -> Iterator[str]:
    """Yield a note where some *tasks*, a list *at* a place, look like templates.

    *literal* are the ids of those that are meant as they stand.
    """
    waiting = [
        (number, names[0])
        for number, task in enumerate(tasks)
        if not task.vars and task.id not in literal and (names := _names(task))
    ]
    if waiting:
        number, name = waiting[0]
        task, many = tasks[number], len(waiting)
        which = f"{task.id!r}" if many == 1 else f"{many} tasks, {task.id!r} first"
        yield (
            f"{shown(at.inside(number))}: {which}: {{{{{name}}}}} is sent unchanged: "
            "there are no `vars` to fill it in from; give them, or write `literal: true` next to "
            "the prompt if that is intended"
        )


def _names(task: Task) -> list[str]:
    said = [*(m.content for m in task.messages), *(turn.say for turn in task.turns)]
    texts = [*said, task.prompt or ""]
    return [name for text in texts if "{{" in text for name in _PLACEHOLDER.findall(text)]


# --- parameters -----------------------------------------------------------------------------------


_COUNTS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed", "top_k")
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(_COUNTS, "int"),
    **dict.fromkeys(_NUMBERS, "float"),
    "stream": "bool",
}
_FITS: Mapping[str, tuple[str, ...]] = {
    "int": ("int", "null"),
    "float": ("int", "float", "null"),
    "bool": ("bool", "null"),
}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_parameters(parameters: Mapping[str, Json], *, at: SourceLocation, of: str = "") -> None:
    """Raise where a parameter that every server knows has a value of the wrong kind.

    They stand *at* a place; *of* is what they belong to, for the message.
    """
    problems = Problems()
    for name, expected in _KINDS.items() if parameters else ():
        kind = _kind(parameters.get(name))
        if kind not in _FITS[expected]:
            here = at.inside(name)
            words = explain_decode_error(
                f"Expected `{expected}`, got `{kind}`", value=parameters[name]
            )
            problems.add(UsageError(f"{shown(here)}: key {dotted(here.key)!r}: {words}{of}"))
    problems.raise_any()


def _kind(value: Json) -> str:
    """Return what the decoder calls the kind of *value*."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float | str):
        return type(value).__name__
    return "object" if isinstance(value, Mapping) else "array"


def check_call(
    function: Callable[..., object],
    settings: Mapping[str, Json],
    *,
    gets: Sequence[str] = (),
    what: str,
) -> None:
    """Raise where *function* cannot be called with what it *gets* by place and *settings* by name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-ins do not say
        return
    placed = [p for p in parameters if p.kind in _PLACED][: len(gets)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(placed) < len(gets) and not takes_any:
        raise UsageError(f"{what} must take {' and '.join(f'`{name}`' for name in gets)}")
    rest = [p for p in parameters if p not in placed]
    _check_names({p.name: p for p in rest if p.kind in _NAMED}, settings, rest, what)


def _check_names(
    named: Mapping[str, inspect.Parameter],
    settings: Mapping[str, Json],
    rest: Sequence[inspect.Parameter],
    what: str,
) -> None:
    takes_all = any(p.kind is p.VAR_KEYWORD for p in rest)
    for key in settings:
        if key not in named and not takes_all:
            raise UsageError(f"{what}: unknown setting {key!r}; {did_you_mean(key, named)}")
    for name, parameter in named.items():
        if parameter.default is parameter.empty and name not in settings:
            raise UsageError(f"{what}: it needs the setting {name!r}; write it under `settings`")
