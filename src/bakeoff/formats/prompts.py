"""Prompts as candidates: how they are read, checked against the tasks of a run, and filled in."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import did_you_mean, near_file
from bakeoff._lib.sanitize import one_line
from bakeoff.core.candidate import PromptSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import StreamedTasks, at_hand
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.formats.text.locate import shown
from bakeoff.formats.text.problems import Problems
from bakeoff.formats.text.template import Template, Variable

_LONGEST_NAME = 40
_FILE_NAME = re.compile(r"[^\s{}]*[^\s{}.]\.[A-Za-z]\w{0,7}")  # one word that ends as files do
_SINGLE_BRACES = re.compile(r"\{\s*(\w+)\s*\}")
_RENDERED_FIRST = 1_000  # tasks that a prompt is tried on before the first request
_OWN_PROMPT, _OWN_SYSTEM = "prompt", "system"
_SYSTEM, _USER = "system", "user"
NO_COLUMNS: Mapping[str, str] = {}


class PromptTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A prompt to compare: `file` or `text` with `{{variables}}`, a `system` message, or both.

    Without a text, tasks are asked as they stand.
    """

    name: str | None = None
    file: str | None = None
    text: str | None = None
    system: str | None = None
    literal: bool = False


def prompts_of_file(tables: Sequence[PromptTable], at: SourceLocation) -> tuple[PromptSpec, ...]:
    """Return the prompts that a run file lists *at* its key `prompts`."""
    problems = Problems()
    prompts: list[PromptSpec] = []
    for number, table in enumerate(tables):
        with problems.gathered():
            prompts.append(_prompt_of(table, at.inside(number)))
    problems.raise_any()
    return tuple(prompts)


def _prompt_of(table: PromptTable, at: SourceLocation) -> PromptSpec:
    if table.file is not None and table.text is not None:
        raise UsageError(f"{shown(at)}: a prompt has a `file` or a `text`, not both")
    if table.file is None and table.text is None and table.system is None:
        raise UsageError(f"{shown(at)}: the prompt is empty: write `file`, `text` or `system`")
    if table.file is None:
        name = table.name or _excerpt(table.text or table.system or "")
        return PromptSpec(
            name=name, text=table.text, system=table.system, literal=table.literal, origin=at
        )
    file = Path(at.file).parent / table.file
    if not file.is_file():
        raise UsageError(f"{shown(at.inside('file'))}: {_not_there(file)}")
    read = _read(file)
    return replace(read, name=table.name or read.name, system=table.system, literal=table.literal)


def prompt_given(given: str | Path | PromptSpec) -> PromptSpec:
    """Return the prompt that *given* names: a file, else the text itself."""
    if isinstance(given, PromptSpec):
        text = given.text or given.system or ""
        return given if given.name else replace(given, name=_excerpt(text))
    if isinstance(given, Path) or _is_path(given):
        file = Path(given)
        if not file.is_file():
            raise UsageError(f"--prompt: {_not_there(file)}")
        return _read(file)
    if not given.strip():
        raise UsageError("--prompt: the prompt is empty; give a file, or a text with {{variables}}")
    origin = SourceLocation(file="--prompt", key=("text",))
    return PromptSpec(name=_excerpt(given), text=given, origin=origin)


def _is_path(given: str) -> bool:
    """Whether *given* is a file, or looks so much like one that it is not meant as a text."""
    if "\n" in given or "{{" in given or len(given) > 1_000:
        return False
    path = Path(given)
    return path.is_file() or _FILE_NAME.fullmatch(given) is not None


def _not_there(file: Path) -> str:
    meant = near_file(file)
    return f"{file} does not exist{f'; did you mean {str(meant)!r}?' if meant else ''}"


def _read(file: Path) -> PromptSpec:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: it cannot be read as text: {error}") from error
    if not text.strip():
        raise UsageError(f"{file}: the prompt is empty")
    return PromptSpec(
        name=file.stem, text=text.removesuffix("\n"), origin=SourceLocation(file=str(file))
    )


def _excerpt(text: str) -> str:
    return one_line(text.strip(), width=_LONGEST_NAME)


def is_named(prompt: PromptSpec) -> bool:
    """Whether *prompt* has a name of its own, not just the beginning of its text."""
    return prompt.name != _excerpt(prompt.text or prompt.system or "")


def distinct_prompts(prompts: Iterable[PromptSpec]) -> tuple[PromptSpec, ...]:
    """Return *prompts*, each content once, and no two contents with one name."""
    by_content = {digest(prompt.identity()): prompt for prompt in prompts}
    uses = Counter(prompt.name for prompt in by_content.values())
    return tuple(
        prompt if uses[prompt.name] == 1 else replace(prompt, name=f"{prompt.name}~{key[:4]}")
        for key, prompt in by_content.items()
    )


# --- filled in ------------------------------------------------------------------------------------


Values = Mapping[str, Json]


class Prompt:
    """A compiled prompt: turns a task into what its candidate is asked."""

    def __init__(self, spec: PromptSpec) -> None:
        self.spec = spec
        self.templates: list[Template] = []
        self._text, self._system = self._compiled(spec.text), self._compiled(spec.system)

    def _compiled(self, text: str | None) -> Template | None:
        if text is None or self.spec.literal:
            return None
        file = _file_of(self.spec) if text is self.spec.text else None
        with _about(self.spec):
            self.templates.append(Template(text, source=file))
        return self.templates[-1]

    def asked(self, task: Task) -> Task:
        """Return *task* as this prompt asks it."""
        values, messages = values_of(task), list(task.messages)
        with _about(self.spec):
            text = self._text.render(values) if self._text else self.spec.text
            system = self._system.render(values) if self._system else self.spec.system
        if text is not None:
            if (asking := _asking_message(task)) is None:
                messages.append(Message(role=_USER, content=text))
            else:
                messages[asking] = messages[asking].with_text(text)
        if system is not None:
            own = bool(messages) and messages[0].role == _SYSTEM
            messages[: int(own)] = [Message(role=_SYSTEM, content=system)]
        return replace(task, messages=tuple(messages), prompt=None)


def asked_by(spec: PromptSpec | None, task: Task) -> Task:
    """Return *task* as the prompt *spec* asks it; without a prompt it is asked as it stands.

    A task that the prompt cannot be filled in for has that as its trouble.
    """
    if spec is None:
        return task
    try:
        return _compiled(spec).asked(task)
    except UsageError as error:  # for the first tasks of a run this is an error before it starts
        return replace(task, trouble=str(error))


@lru_cache(maxsize=256)
def _compiled(spec: PromptSpec) -> Prompt:
    return Prompt(spec)


def values_of(task: Task) -> Values:
    """Return what a prompt may insert for *task*: its `vars`, else its own prompt and system message."""
    own: dict[str, Json] = {}
    if (asking := _asking_message(task)) is not None:
        own[_OWN_PROMPT] = task.messages[asking].content
    if task.messages and task.messages[0].role == _SYSTEM:
        own[_OWN_SYSTEM] = task.messages[0].content
    return {**own, **task.vars}


def _asking_message(task: Task) -> int | None:
    """Return the number of the user's last message; those before it are history."""
    numbers = range(len(task.messages) - 1, -1, -1)
    return next((n for n in numbers if task.messages[n].role == _USER), None)


def _file_of(spec: PromptSpec) -> str | None:
    """Return the file whose whole content is the text of *spec*, if there is one."""
    return spec.origin.file if spec.origin is not None and not spec.origin.key else None


@contextmanager
def _about(spec: PromptSpec) -> Iterator[None]:
    """Say which prompt a mistake is in, where its file does not say so."""
    try:
        yield
    except UsageError as error:
        raise _located(spec, str(error)) from error


def _located(spec: PromptSpec, why: str) -> UsageError:
    file = _file_of(spec)
    if file is not None and why.startswith(f"{file}:"):
        return UsageError(why)
    where = f"{shown(spec.origin)}: " if spec.origin is not None else ""
    return UsageError(f"{where}prompt {spec.name!r}: {why}")


# --- checked --------------------------------------------------------------------------------------


def check_prompts(
    specs: Sequence[PromptSpec], tasks: Sequence[Task], columns: Mapping[str, str] = NO_COLUMNS
) -> None:
    """Raise where a prompt cannot be filled in for one of *tasks*, or asks all of them the same.

    Of a stream of tasks, all are known to have the variables; the first ones are filled in. *columns*
    are those of a data set that have a role.
    """
    problems = Problems()
    prompts: list[Prompt] = []
    for spec in specs:
        with problems.gathered():
            prompts.append(_compiled(spec))
    if prompts:
        overview = _Overview(at_hand(tasks), columns)
        many = tasks.shapes if isinstance(tasks, StreamedTasks) else ((task, 1) for task in tasks)
        for task, count in many:
            if task.trouble is None:
                overview.add(task, count)
        for prompt in prompts:
            for error in _problems(prompt, overview):
                problems.add(error)
    problems.raise_any()


class _Overview:
    """Which values the tasks of a run have: most of them the same ones, as rows of a table do."""

    def __init__(self, first: Iterable[Task], columns: Mapping[str, str]) -> None:
        self.tasks = 0
        self.columns = columns
        self.with_files = False
        self.first = list(islice((t for t in first if t.trouble is None), _RENDERED_FIRST))
        self._lines: dict[frozenset[str], tuple[int, str]] = {}  # how many, and which first

    def add(self, task: Task, count: int) -> None:
        """Count *task*, which stands for *count* with the same variables."""
        self.tasks += count
        self.with_files = self.with_files or task.workspace is not None or any(task.attachments)
        names = frozenset(values_of(task))
        before, first = self._lines.get(names, (0, task.id))
        self._lines[names] = before + count, first

    @property
    def names(self) -> set[str]:
        """The values that any task has."""
        return {name for names in self._lines for name in names}

    def lacking(self, name: str) -> tuple[int, str]:
        """Return how many tasks have no value called *name*, and the first of them."""
        lines = [line for names, line in self._lines.items() if name not in names]
        return sum(count for count, _ in lines), lines[0][1] if lines else ""


def _problems(prompt: Prompt, overview: _Overview) -> Iterator[UsageError]:
    """Yield what is wrong with *prompt* for the tasks of *overview*."""
    spec, used, complete = prompt.spec, False, True
    for template in prompt.templates:
        for variable in template.variables.values():
            used = True
            if why := _why_missing(variable, overview):
                complete = False
                text = f"{{{{{variable.name}}}}}: {why}"
                yield _located(spec, str(template.wrong(variable.line, text)))
    if complete and (error := _first_failure(prompt, overview.first)):
        yield error
    asks_alike = spec.text is not None and not spec.literal and not used
    if asks_alike and not overview.with_files and overview.tasks > 1:
        yield _located(
            spec,
            f"it has no variable, so all {overview.tasks:,} tasks would be asked the same; "
            f"{_what_to_insert(spec.text or '', overview.names)}, or write `literal = true` into "
            "[[prompts]] of a run file",
        )


def _what_to_insert(text: str, names: set[str]) -> str:
    """Say which of *names* to insert: the one in single braces, as in Python, or any."""
    for name in _SINGLE_BRACES.findall(text):
        if name in names:
            return f"a variable has two braces: {{{{{name}}}}}"
    return f"insert one ({did_you_mean('', names)})"


def _why_missing(variable: Variable, overview: _Overview) -> str | None:
    lacking, first = overview.lacking(variable.name)
    if lacking and overview.columns.get(variable.name) == "expected":
        return (
            "this column holds the expected answers, which a prompt must not tell; if it is meant to, "
            f"map it to another name: --map told={variable.name}, and write {{{{told}}}}"
        )
    if lacking and lacking == overview.tasks:
        return f"no task has a value for it; {did_you_mean(variable.name, overview.names)}"
    if lacking and variable.required:
        which = (
            f"task {first!r} has" if lacking == 1 else f"{lacking:,} tasks, {first!r} first, have"
        )
        instead = f"{{{{ {variable.name} | default('') }}}}"
        return f"{which} no value for it; give one, or write {instead}"
    return None


def _first_failure(prompt: Prompt, tasks: Sequence[Task]) -> UsageError | None:
    """Return why *prompt* cannot be filled in for one of *tasks*, all of which have its variables."""
    for task in tasks:
        try:
            asked = prompt.asked(task)
        except UsageError as error:
            return UsageError(f"{error} (task {task.id!r})")
        if not asked.messages:
            why = f"it has no `text`, and task {task.id!r} has none either"
            return _located(prompt.spec, why)
    return None
