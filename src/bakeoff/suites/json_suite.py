"""The front door for JSON prompt suites, with the files that may lie beside one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from bakeoff._lib.suggest import near
from bakeoff.config.convert import convert
from bakeoff.config.entries import (
    MessageTable,
    ScorerEntry,
    conversation,
    default_scorers,
    scorer_specs,
)
from bakeoff.config.json_file import read_json
from bakeoff.core.brief import Brief, Source
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json

CATEGORIES_FILE = "categories.json"
METADATA_FILE = "test_suite_metadata.json"

S = TypeVar("S", bound=msgspec.Struct)
OverZero = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class TestEntry(msgspec.Struct, kw_only=True):
    """One test as it stands in the file; keys that are not here are kept as metadata."""

    id: str
    prompt: str | None = None
    messages: list[MessageTable] | None = None
    name: str | None = None
    category: str | None = None
    reasoning_type: str | None = None
    description: str | None = None
    parameters: dict[str, Json] = {}
    metadata: dict[str, Json] = {}
    evaluation_config: dict[str, Json] = {}
    api_type: str | None = None
    expected: Json = None
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Share | None = None


class ApiConfig(msgspec.Struct, kw_only=True):
    """Where the tests are sent; other keys are for people."""

    endpoint: str
    model: str = ""
    headers: dict[str, str] = {}
    type: str | None = None
    timeout: OverZero | None = None
    api_key: str | None = None


class GlobalSettings(msgspec.Struct, kw_only=True):
    """Defaults for every test; other keys are for people."""

    default_timeout_seconds: OverZero | None = None
    default_retry_attempts: Annotated[int, Meta(ge=0)] | None = None
    delay_between_tests: Annotated[float, Meta(ge=0)] | None = None
    output_directory: str | None = None
    save_raw_responses: bool | None = None


class ConcurrentMode(msgspec.Struct, kw_only=True):
    """How many tests at once."""

    default_workers: Count | None = None
    max_workers: Count | None = None


class ExecutionModes(msgspec.Struct, kw_only=True):
    """The two ways to run a suite."""

    sequential: dict[str, Json] = {}
    concurrent: ConcurrentMode = msgspec.field(default_factory=ConcurrentMode)


class Metadata(msgspec.Struct, kw_only=True):
    """The metadata file, or the same keys in the suite itself."""

    api_config: ApiConfig | None = None
    global_settings: GlobalSettings = msgspec.field(default_factory=GlobalSettings)
    execution_modes: ExecutionModes = msgspec.field(default_factory=ExecutionModes)


class CategoryEntry(msgspec.Struct, kw_only=True):
    """The tests of one category; other keys are for people."""

    test_ids: list[str] = []


class SuiteFile(Metadata, kw_only=True):
    """A whole suite; only `tests` is required."""

    tests: list[TestEntry]
    suite_info: dict[str, Json] = {}
    test_categories: dict[str, CategoryEntry] | list[str] = {}
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Share | None = None


class CategoriesFile(msgspec.Struct, kw_only=True):
    """`categories.json`."""

    categories: dict[str, CategoryEntry] = {}


@dataclass(frozen=True, kw_only=True)
class SuiteFiles:
    """A suite and what lay beside it; the metadata is not yet applied to the brief."""

    brief: Brief
    metadata: Metadata
    categories: Mapping[str, CategoryEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How answers are checked where neither a test nor its suite says so."""

    scorers: tuple[ScorerSpec, ...] | None = None
    pass_threshold: float = 1.0


_EVALUATION_KEYS = ("reasoning_type", "custom_weights", "expected_indicators")
_KNOWN = frozenset(TestEntry.__struct_fields__)
_BY_TARGET = Scoring()


def read_suite(path: Path, *, beside: bool = True, scoring: Scoring = _BY_TARGET) -> Brief:
    """Return what the suite at *path* asks for, with the files beside it unless told otherwise."""
    files = read_suite_files(path, beside=beside, scoring=scoring)
    if not files.brief.tasks:
        raise UsageError(f"{path}: there are no tests to run; write one at least into `tests`")
    return with_metadata(files.brief, files.metadata)


def read_suite_files(
    path: Path, *, beside: bool = True, scoring: Scoring = _BY_TARGET
) -> SuiteFiles:
    """Return the suite at *path* and the files beside it, each for itself."""
    data, source = _read_object(path)
    suite = _convert(data, SuiteFile, path)
    metadata: Metadata = suite
    sources = [source]
    categories = dict(suite.test_categories) if isinstance(suite.test_categories, dict) else {}
    if beside and (extra := path.with_name(CATEGORIES_FILE)).is_file() and extra != path:
        more, found = read_categories(extra)
        categories = {**more, **categories}
        sources.append(found)
    if beside and not suite.api_config and (extra := path.with_name(METADATA_FILE)).is_file():
        below, found = read_metadata(extra)
        metadata = filled(suite, below)
        sources.append(found)
    defaults = _Defaults(
        path=path,
        scorers=scoring.scorers if suite.scorers is None else scorer_specs(suite.scorers),
        pass_threshold=scoring.pass_threshold
        if suite.pass_threshold is None
        else suite.pass_threshold,
        time_s=metadata.global_settings.default_timeout_seconds,
        listed_in=_listed_in(categories),
    )
    tasks = _tasks(suite.tests, data["tests"], defaults)
    notices = tuple(_misspelt(data["tests"], path))
    brief = Brief(name=_name(suite, path), tasks=tasks, sources=tuple(sources), notices=notices)
    return SuiteFiles(brief=brief, metadata=metadata, categories=categories)


def read_metadata(path: Path) -> tuple[Metadata, Source]:
    """Return the metadata file at *path*."""
    data, source = _read_object(path)
    return _convert(data, Metadata, path), source


def read_categories(path: Path) -> tuple[dict[str, CategoryEntry], Source]:
    """Return the categories file at *path*."""
    data, source = _read_object(path)
    return _convert(data, CategoriesFile, path).categories, source


def filled(above: Metadata, below: Metadata) -> Metadata:
    """Return *above* with its gaps filled from *below*; an endpoint comes whole, with its headers."""
    return Metadata(
        api_config=above.api_config or below.api_config,
        global_settings=_without_gaps(above.global_settings, below.global_settings),
        execution_modes=ExecutionModes(
            sequential={**below.execution_modes.sequential, **above.execution_modes.sequential},
            concurrent=_without_gaps(
                above.execution_modes.concurrent, below.execution_modes.concurrent
            ),
        ),
    )


def _without_gaps(above: S, below: S) -> S:
    names = above.__struct_fields__
    return msgspec.structs.replace(
        above, **{name: getattr(below, name) for name in names if getattr(above, name) is None}
    )


def with_metadata(brief: Brief, metadata: Metadata) -> Brief:
    """Return *brief* with the endpoint and the knobs that *metadata* gives."""
    api, settings = metadata.api_config, metadata.global_settings
    if api is not None:
        brief = replace(brief, models=(model_of(api, settings),))
    if settings.delay_between_tests is not None:
        brief = replace(brief, pause_s=settings.delay_between_tests)
    workers = metadata.execution_modes.concurrent
    if workers.default_workers is not None:
        brief = replace(brief, parallel=workers.default_workers)
    return brief


def model_of(api: ApiConfig, settings: GlobalSettings) -> ModelSpec:
    """Return the model behind *api*."""
    extra: dict[str, Json] = {}
    if settings.default_retry_attempts is not None:
        extra["max_retries"] = settings.default_retry_attempts
    if api.timeout is not None:
        extra["timeout_s"] = api.timeout
    if api.type in {"chat", "completions"}:
        extra["api_type"] = api.type
    return ModelSpec(
        provider="openai-compatible",
        name=api.model,
        base_url=api.endpoint,
        api_key=api.api_key,
        headers=api.headers,
        settings=extra,
    )


def _read_object(path: Path) -> tuple[dict[str, Json], Source]:
    data, source = read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f'{path}: a JSON object is expected, such as {{"tests": [...]}}')
    return data, source


def _convert(data: Mapping[str, Json], kind: type[S], path: Path) -> S:
    try:
        return convert(data, kind, source=str(path), line_of=lambda _: None)
    except UsageError as error:
        raise UsageError(_name_the_test(str(error), data)) from error


def _name_the_test(message: str, data: Mapping[str, Json]) -> str:
    """Return *message* with the id of the test beside its position."""
    found = re.search(r"tests\[(\d+)\]", message)
    tests = data.get("tests")
    if not found or not isinstance(tests, Sequence):
        return message
    test = tests[int(found[1])]
    test_id = test.get("id") if isinstance(test, Mapping) else None
    return f"{message} (test {test_id!r})" if isinstance(test_id, str) else message


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What holds for every test that does not say otherwise."""

    path: Path
    scorers: tuple[ScorerSpec, ...] | None
    pass_threshold: float
    time_s: float | None
    listed_in: Mapping[str, list[str]]


def _tasks(entries: Sequence[TestEntry], raw: Json, defaults: _Defaults) -> tuple[Task, ...]:
    originals = raw if isinstance(raw, Sequence) else ()
    tasks: dict[str, Task] = {}
    for entry, original in zip(entries, originals, strict=True):
        if not entry.id.strip():
            raise UsageError(f"{defaults.path}: tests[{len(tasks)}]: `id` is empty")
        if entry.id in tasks:
            raise UsageError(
                f"{defaults.path}: test {entry.id!r} is there twice; give each its own `id`"
            )
        unknown = {k: v for k, v in original.items() if k not in _KNOWN}  # type: ignore[union-attr]
        tasks[entry.id] = _task(entry, unknown, defaults)
    return tuple(tasks.values())


def _misspelt(raw: Json, path: Path) -> Iterator[str]:
    """Yield a word about each key of a test that is kept, but was probably meant for something."""
    seen: dict[str, list[Json]] = {}
    for test in raw if isinstance(raw, list) else ():
        for key in test if isinstance(test, dict) else ():
            if key not in _KNOWN:
                seen.setdefault(key, []).append(test["id"])
    for key, ids in seen.items():
        if meant := near(key, _KNOWN, least=0.85):
            tests = f"test {ids[0]!r}" if len(ids) == 1 else f"{len(ids)} tests, {ids[0]!r} first"
            yield f"{path}: {tests}: the key {key!r} means nothing here; is `{meant}` meant?"


def _task(entry: TestEntry, unknown: Mapping[str, Json], defaults: _Defaults) -> Task:
    what = f"{defaults.path}: test {entry.id!r}"
    threshold = entry.pass_threshold
    return Task(
        id=entry.id,
        messages=conversation(entry.prompt, entry.messages, what=what, unknown=unknown),
        parameters=entry.parameters,
        target=entry.expected,
        scorers=_scorers(entry, defaults),
        pass_threshold=defaults.pass_threshold if threshold is None else threshold,
        time_s=_time_limit(entry, defaults, what),
        api_type=entry.api_type,
        name=entry.name,
        category=_category(entry, defaults),
        metadata=_metadata(entry, unknown),
    )


def _category(entry: TestEntry, defaults: _Defaults) -> str | None:
    """Return where the test belongs: where the categories list it, else where it says itself."""
    listed = defaults.listed_in.get(entry.id)
    return listed[0] if listed and entry.category not in listed else entry.category


def _scorers(entry: TestEntry, defaults: _Defaults) -> tuple[ScorerSpec, ...]:
    specs = _named_scorers(entry, defaults)
    if not entry.evaluation_config:
        return specs
    return tuple(_with_evaluation(spec, entry.evaluation_config) for spec in specs)


def _named_scorers(entry: TestEntry, defaults: _Defaults) -> tuple[ScorerSpec, ...]:
    if entry.scorers is not None:
        return scorer_specs(entry.scorers)
    if defaults.scorers is not None:
        return defaults.scorers
    if entry.expected is None and entry.evaluation_config:
        # a style heuristic informs; it never decides whether an answer is right
        return (ScorerSpec(name="reasoning", weight=0.0),)
    return default_scorers(entry.expected)


def _with_evaluation(spec: ScorerSpec, config: Mapping[str, Json]) -> ScorerSpec:
    """Return the `reasoning` scorer with what the test says about it: it is part of the scoring."""
    if spec.name != "reasoning":
        return spec
    settings = {key: config[key] for key in _EVALUATION_KEYS if key in config}
    return replace(spec, settings={**settings, **spec.settings})


def _time_limit(entry: TestEntry, defaults: _Defaults, what: str) -> float | None:
    own = entry.metadata.get("timeout_seconds")
    if own is None:
        return defaults.time_s
    if isinstance(own, bool) or not isinstance(own, int | float) or own <= 0:
        raise UsageError(f"{what}: `metadata.timeout_seconds` must be a number over 0, not {own!r}")
    return float(own)


def _metadata(entry: TestEntry, unknown: Mapping[str, Json]) -> dict[str, Json]:
    labels: dict[str, Json] = {
        "description": entry.description,
        "reasoning_type": entry.reasoning_type,
        "evaluation_config": entry.evaluation_config or None,
    }
    given = {key: value for key, value in labels.items() if value is not None}
    return {**unknown, **entry.metadata, **given}
