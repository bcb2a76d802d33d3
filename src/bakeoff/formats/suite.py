"""JSON prompt suites: their tests as tasks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.phrasing import near
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import Origin
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task, Turn
from bakeoff.core.tools import TaskTools
from bakeoff.core.values import Json
from bakeoff.formats.suite_companions import (
    CATEGORIES_FILE,
    METADATA_FILE,
    CategoryEntry,
    Metadata,
    converted,
    filled,
    read_categories,
    read_metadata,
    read_object,
    with_metadata,
)
from bakeoff.formats.text.entries import (
    MessageTable,
    ScorerEntry,
    check_parameters,
    default_scorers,
    filled_in,
    misnamed_variables,
    placeholder_notes,
    prompt_beside,
    prompts_that_differ,
    refuse_misnamed,
    scorer_specs,
)
from bakeoff.formats.text.locate import line_in, shown
from bakeoff.formats.text.problems import Problems
from bakeoff.formats.tools import Rounds, ToolTable, refuse_tools_twice, task_tools
from bakeoff.formats.turns import TurnTable, messages_of, scripted_turns, turn_scorers

Share = Annotated[float, Meta(ge=0, le=1)]
_EVALUATION_KEYS = ("reasoning_type", "custom_weights", "expected_indicators")


class TestEntry(msgspec.Struct, kw_only=True):
    """One test as it stands in the file; keys that are not here are kept as metadata.

    `prompt`, `messages` or `turns` is required, or `vars` for the prompts of a run. Where both `prompt`
    and `messages` are there, `messages` go to a chat API and `prompt` goes to a completions API; a run
    says so where they ask different things. `files` (pictures, PDF, text: paths beside the suite, or
    data URIs) stand before what the user says last. `id`, messages, `parameters`, `expected`,
    `scorers`, `pass_threshold`, the time limit and `api_type` are the test's identity.
    """

    id: str
    prompt: str | None = None
    messages: list[MessageTable] | None = None
    files: list[str] = []
    vars: dict[str, Json] = {}
    literal: bool | None = None
    name: str | None = None
    category: str | None = None
    group: str | int | None = None
    reasoning_type: str | None = None
    description: str | None = None
    parameters: dict[str, Json] = {}
    metadata: dict[str, Json] = {}
    evaluation_config: dict[str, Json] = {}
    api_type: str | None = None
    expected: Json = None
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Share | None = None
    tools: list[ToolTable] | None = None
    tool_rounds: Rounds | None = None
    turns: Annotated[list[TurnTable], Meta(min_length=1)] | None = None


class SuiteFile(Metadata, kw_only=True):
    """A whole suite; only `tests` is required."""

    tests: list[TestEntry]
    suite_info: dict[str, Json] = msgspec.field(default_factory=dict)
    test_categories: dict[str, CategoryEntry] | list[str] = msgspec.field(default_factory=dict)
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Share | None = None
    vars: dict[str, Json] = msgspec.field(default_factory=dict)
    literal: bool = False


@value_object
class SuiteFiles:
    """A suite and its companion files; the metadata is not yet applied to the run spec."""

    run_spec: RunSpec
    metadata: Metadata
    categories: Mapping[str, CategoryEntry]
    endpoint_file: Path


@value_object
class Scoring:
    """How answers are checked where neither a test nor its suite says so."""

    scorers: tuple[ScorerSpec, ...] | None = None
    pass_threshold: float = 1.0


_KNOWN = frozenset(TestEntry.__struct_fields__)
_BY_TARGET = Scoring()


def read_suite(path: Path, *, companions: bool = True, scoring: Scoring = _BY_TARGET) -> RunSpec:
    """Return the run that the suite at *path* describes, with its *companions* by default."""
    files = read_suite_files(path, companions=companions, scoring=scoring)
    if not files.run_spec.tasks:
        where = shown(SourceLocation(file=str(path), key=("tests",)))
        raise UsageError(f"{where}: there are no tests to run; add at least one to `tests`")
    return _with_endpoint_place(with_metadata(files.run_spec, files.metadata), files.endpoint_file)


def _with_endpoint_place(run_spec: RunSpec, file: Path) -> RunSpec:
    """Return *run_spec* with models that know the *file* which names their endpoint."""
    if not run_spec.models:
        return run_spec
    origin = Origin.at(file, line_in(file, ("api_config",)), address="endpoint")
    return replace(run_spec, models=tuple(replace(spec, origin=origin) for spec in run_spec.models))


def _refuse_rows(data: Mapping[str, Json], path: Path) -> None:
    """Raise where *data* is no suite but holds the rows of a data set."""
    if near("tests", data):
        return
    for key, rows in data.items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            raise UsageError(
                f"{path}: `tests` is missing. If {key!r} holds the rows of a data set, save that list as "
                "a file of its own"
            )


def read_suite_files(
    path: Path, *, companions: bool = True, scoring: Scoring = _BY_TARGET
) -> SuiteFiles:
    """Return the suite at *path* and its companion files, unmerged."""
    data, source = read_object(path)
    _refuse_rows(data, path)
    suite = _suite(data, path)
    metadata: Metadata = suite
    sources, endpoint_file = [source], path
    categories = dict(suite.test_categories) if isinstance(suite.test_categories, dict) else {}
    if companions and (extra := path.with_name(CATEGORIES_FILE)).is_file() and extra != path:
        more, source = read_categories(extra)
        categories = {**more, **categories}
        sources.append(source)
    if companions and not suite.api_config and (extra := path.with_name(METADATA_FILE)).is_file():
        below, source = read_metadata(extra)
        metadata = filled(suite, below)
        sources.append(source)
        endpoint_file = extra
    at = SourceLocation(file=str(path))
    defaults = _Defaults(
        scorers=_suite_scorers(suite, scoring, at),
        pass_threshold=scoring.pass_threshold
        if suite.pass_threshold is None
        else suite.pass_threshold,
        time_s=metadata.global_settings.default_timeout_seconds,
        listed_in=_listed_in(categories),
        literal=suite.literal,
        vars=suite.vars,
        misnamed=frozenset(misnamed_variables(data)),
    )
    tests_at = at.inside("tests")
    literal = {entry.id for entry in suite.tests if _is_literal(entry, suite.literal)}
    misspelt = tuple(_misspelt(data["tests"], tests_at))
    tasks = _tasks(_taken(suite.tests, data["tests"]), defaults, tests_at)
    notices = (
        *misspelt,
        *prompts_that_differ(tasks, tests_at),
        *placeholder_notes(tasks, literal, tests_at),
    )
    run_spec = RunSpec(
        name=_name(suite, path), tasks=tasks, sources=tuple(sources), notices=notices
    )
    return SuiteFiles(
        run_spec=run_spec, metadata=metadata, categories=categories, endpoint_file=endpoint_file
    )


def _suite(data: Mapping[str, Json], path: Path) -> SuiteFile:
    """Return the suite in *data*; all that is wrong in it is one error."""
    try:
        return converted(data, SuiteFile, path)
    except UsageError as error:
        problems = Problems()
        problems.add(error)
        with problems.gathered():
            at = SourceLocation(file=str(path), key=("tests",))
            _tasks(_readable(data.get("tests")), _NO_DEFAULTS, at)
        raise UsageError(problems.message) from error


def _name(suite: SuiteFile, path: Path) -> str:
    name = suite.suite_info.get("name")
    return name if isinstance(name, str) and name else path.stem


def _listed_in(categories: Mapping[str, CategoryEntry]) -> dict[str, list[str]]:
    """Return for each test the categories that list it."""
    listed: dict[str, list[str]] = {}
    for name, entry in categories.items():
        for test in entry.test_ids:
            listed.setdefault(test, []).append(name)
    return listed


@value_object
class _Defaults:
    """What holds for every test that does not say otherwise."""

    scorers: tuple[ScorerSpec, ...] | None
    pass_threshold: float
    time_s: float | None = None
    listed_in: Mapping[str, list[str]] = field(default_factory=dict)
    literal: bool = False
    vars: Mapping[str, Json] = field(default_factory=dict)
    misnamed: frozenset[str] = frozenset()


def _suite_scorers(
    suite: SuiteFile, scoring: Scoring, at: SourceLocation
) -> tuple[ScorerSpec, ...] | None:
    if suite.scorers is None:
        return scoring.scorers
    return scorer_specs(suite.scorers, at=at.inside("scorers"), trusted=False)


_NO_DEFAULTS = _Defaults(scorers=None, pass_threshold=1.0)

_Numbered = tuple[int, TestEntry, Mapping[str, Json]]
"""A test with its number in the file, and as it stands there."""


def _taken(entries: list[TestEntry], raw: Json) -> Iterator[_Numbered]:
    """Yield the tests and take them out of both lists: a large suite is not held three times."""
    originals = raw if isinstance(raw, list) else []
    entries.reverse()
    originals.reverse()
    for number in range(len(entries)):
        entry, original = entries.pop(), originals.pop()
        yield number, entry, original if isinstance(original, Mapping) else {}


def _readable(raw: Json) -> Iterator[_Numbered]:
    """Yield the tests that are as they should be, one by one."""
    for number, original in enumerate(raw if isinstance(raw, list) else ()):
        try:
            entry = msgspec.convert(original, TestEntry)
        except msgspec.ValidationError:
            continue  # it is told of elsewhere
        yield number, entry, original


def _tasks(
    entries: Iterable[_Numbered], defaults: _Defaults, at: SourceLocation
) -> tuple[Task, ...]:
    tasks: dict[str, Task] = {}
    seen: set[str] = set()
    problems = Problems()
    for number, entry, original in entries:
        here = at.inside(number)
        with problems.gathered():
            if not entry.id.strip():
                raise UsageError(f"{shown(here.inside('id'))}: tests[{number}]: `id` is empty")
            if entry.id in seen:
                where, what = shown(here.inside("id")), f"test {entry.id!r} is defined twice"
                raise UsageError(f"{where}: {what}; give each its own `id`")
            seen.add(entry.id)
            unknown = {k: v for k, v in original.items() if k not in _KNOWN}
            task = _task(entry, unknown, defaults, here)
            if not _is_literal(entry, defaults.literal):
                refuse_misnamed(task, defaults.misnamed | misnamed_variables(unknown), here)
                task = filled_in(task, here)
            tasks[entry.id] = task
    problems.raise_any()
    return tuple(tasks.values())


def _is_literal(entry: TestEntry, suite: bool) -> bool:  # noqa: FBT001 -- what the suite says
    return suite if entry.literal is None else entry.literal


def _misspelt(raw: Json, at: SourceLocation) -> Iterator[str]:
    """Yield a word about each key of a test that is kept, but was probably meant for something."""
    seen: dict[str, list[tuple[int, Json]]] = {}
    for number, test in enumerate(raw if isinstance(raw, list) else ()):
        for key in test if isinstance(test, dict) else ():
            if key not in _KNOWN:
                seen.setdefault(key, []).append((number, test["id"]))
    for key, holders in seen.items():
        if meant := near(key, _KNOWN, least=0.85):
            number, first = holders[0]
            many = len(holders)
            tests = f"test {first!r}" if many == 1 else f"{many} tests, {first!r} first"
            where = shown(at.inside(number, key))
            yield f"{where}: {tests}: the key {key!r} is unknown here; did you mean `{meant}`?"


def _task(
    entry: TestEntry, unknown: Mapping[str, Json], defaults: _Defaults, at: SourceLocation
) -> Task:
    what = f"test {entry.id!r}"
    threshold = entry.pass_threshold
    values = {**defaults.vars, **entry.vars}
    problems = Problems()
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    with problems.gathered():
        turns = scripted_turns(entry.turns or (), what=what, at=at)
        messages = messages_of(entry, turns, what=what, at=at, unknown=unknown, values=values)
    tools: TaskTools | None = None
    with problems.gathered():
        tools = _tools(entry, what, at)
    time_s: float | None = None
    with problems.gathered():
        time_s = _time_limit(entry, defaults, at)
    if entry.parameters:
        with problems.gathered():
            check_parameters(entry.parameters, at=at.inside("parameters"), of=f" ({what})")
    problems.raise_any()
    return Task(
        id=entry.id,
        messages=messages,
        prompt=prompt_beside(entry.prompt, messages),
        parameters=entry.parameters,
        target=entry.expected,
        scorers=_scorers(entry, defaults, at),
        pass_threshold=defaults.pass_threshold if threshold is None else threshold,
        time_s=time_s,
        api_type=entry.api_type,
        name=entry.name,
        category=_category(entry, defaults),
        group=None if entry.group is None else str(entry.group),
        metadata=_metadata(entry, unknown),
        vars=values,
        tools=tools,
        turns=turns,
    )


def _tools(entry: TestEntry, what: str, at: SourceLocation) -> TaskTools | None:
    tools = task_tools(entry.tools, entry.tool_rounds, at=at, what=what, trusted=False)
    refuse_tools_twice(tools, entry.parameters, at=at, what=what)
    if tools is not None and entry.api_type == "completions":
        where = shown(at.inside("api_type"))
        raise UsageError(f"{where}: {what}: a completions API takes no `tools`; use chat")
    return tools


def _category(entry: TestEntry, defaults: _Defaults) -> str | None:
    """Return where the test belongs: where the categories list it, else where it says itself."""
    listed = defaults.listed_in.get(entry.id)
    return listed[0] if listed and entry.category not in listed else entry.category


def _scorers(entry: TestEntry, defaults: _Defaults, at: SourceLocation) -> tuple[ScorerSpec, ...]:
    specs = _named_scorers(entry, defaults, at)
    if entry.turns:
        specs = (*turn_scorers(entry.turns, at=at.inside("turns"), trusted=False), *specs)
    if not entry.evaluation_config:
        return specs
    location = at.inside("evaluation_config")
    return tuple(_with_evaluation(spec, entry.evaluation_config, location) for spec in specs)


def _named_scorers(
    entry: TestEntry, defaults: _Defaults, at: SourceLocation
) -> tuple[ScorerSpec, ...]:
    if entry.scorers is not None:
        return scorer_specs(entry.scorers, at=at.inside("scorers"), trusted=False)
    if defaults.scorers is not None:
        return defaults.scorers
    if entry.expected is None and entry.evaluation_config:
        # a style heuristic informs; it never decides whether an answer is right
        return (ScorerSpec(name="reasoning", weight=0.0),)
    return default_scorers(entry.expected, at=at.inside("expected"))


def _with_evaluation(
    spec: ScorerSpec, config: Mapping[str, Json], at: SourceLocation
) -> ScorerSpec:
    """Return the `reasoning` scorer with what the test says about it: it is part of the scoring."""
    if spec.name != "reasoning":
        return spec
    settings = {key: config[key] for key in _EVALUATION_KEYS if key in config}
    origin = spec.origin if spec.settings else at
    return replace(spec, settings={**settings, **spec.settings}, origin=origin)


def _time_limit(entry: TestEntry, defaults: _Defaults, at: SourceLocation) -> float | None:
    own = entry.metadata.get("timeout_seconds")
    if own is None:
        return defaults.time_s
    if isinstance(own, bool) or not isinstance(own, int | float) or own <= 0:
        where = f"{shown(at.inside('metadata', 'timeout_seconds'))}: test {entry.id!r}"
        why = f"`metadata.timeout_seconds` must be a number over 0, not {own!r}"
        raise UsageError(f"{where}: {why}")
    return float(own)


def _metadata(entry: TestEntry, unknown: Mapping[str, Json]) -> dict[str, Json]:
    labels: dict[str, Json] = {
        "description": entry.description,
        "reasoning_type": entry.reasoning_type,
        "evaluation_config": entry.evaluation_config or None,
    }
    given = {key: value for key, value in labels.items() if value is not None}
    return {**unknown, **entry.metadata, **given}
