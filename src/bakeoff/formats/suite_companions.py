"""The files beside a JSON suite: where its tests are sent, how many at once, and their categories."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec, Source
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in

OverZero = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
CATEGORIES_FILE = "categories.json"
METADATA_FILE = "test_suite_metadata.json"
API_TYPES = frozenset({"chat", "completions"})
S = TypeVar("S", bound=msgspec.Struct)


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
    """`test_suite_metadata.json` next to the suite, read if the suite has no `api_config`."""

    api_config: ApiConfig | None = None
    global_settings: GlobalSettings = msgspec.field(default_factory=GlobalSettings)
    execution_modes: ExecutionModes = msgspec.field(default_factory=ExecutionModes)


class CategoryEntry(msgspec.Struct, kw_only=True):
    """The tests of one category; other keys are for people."""

    test_ids: list[str] = []


class CategoriesFile(msgspec.Struct, kw_only=True):
    """`categories.json` next to the suite.

    Where it or `test_categories` lists a test, that is the category it is counted in; else it is
    the test's own `category`. `TestRunner.execute_category` takes every test that a category lists.
    """

    categories: dict[str, CategoryEntry] = {}


def read_metadata(path: Path) -> tuple[Metadata, Source]:
    """Return the metadata file at *path*."""
    data, source = read_object(path)
    return converted(data, Metadata, path), source


def read_categories(path: Path) -> tuple[dict[str, CategoryEntry], Source]:
    """Return the categories file at *path*."""
    data, source = read_object(path)
    return converted(data, CategoriesFile, path).categories, source


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


def with_metadata(run_spec: RunSpec, metadata: Metadata) -> RunSpec:
    """Return *run_spec* with the endpoint and the knobs that *metadata* gives."""
    api, settings = metadata.api_config, metadata.global_settings
    if api is not None:
        run_spec = replace(run_spec, models=(model_of(api, settings),))
    if settings.delay_between_tests is not None:
        run_spec = replace(run_spec, pause_s=settings.delay_between_tests)
    workers = metadata.execution_modes.concurrent
    if workers.default_workers is not None:
        run_spec = replace(run_spec, parallel=workers.default_workers)
    return run_spec


def model_of(api: ApiConfig, settings: GlobalSettings) -> ModelSpec:
    """Return the model behind *api*, which may read no variable unless the operator allows it."""
    extra: dict[str, Json] = {}
    if settings.default_retry_attempts is not None:
        extra["max_retries"] = settings.default_retry_attempts
    if api.timeout is not None:
        extra["timeout_s"] = api.timeout
    if api.type in API_TYPES:
        extra["api_type"] = api.type
    return ModelSpec(
        provider="openai-compatible",
        name=api.model,
        base_url=api.endpoint,
        api_key=api.api_key,
        headers=api.headers,
        settings=extra,
        may_read=(),
    )


def read_object(path: Path) -> tuple[dict[str, Json], Source]:
    """Return the JSON object in the file at *path*."""
    data, source = read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f'{path}: a JSON object is expected, such as {{"tests": [...]}}')
    return data, source


def converted(data: Mapping[str, Json], kind: type[S], path: Path) -> S:
    """Return *data* of the file at *path* as *kind*; a mistake is reported with its line and its test."""
    return convert(
        data,
        kind,
        source=str(path),
        line_of=partial(line_in, path),
        name_of=partial(_test_at, data.get("tests")),
    )


def _test_at(tests: Json, at: Sequence[str | int]) -> str | None:
    """Return which of *tests* a mistake is in; None where it is in none that has an id."""
    match at:
        case "tests", int(number), *_ if isinstance(tests, Sequence) and number < len(tests):
            test = tests[number]
            test_id = test.get("id") if isinstance(test, Mapping) else None
            return f"test {test_id!r}" if isinstance(test_id, str) else None
    return None
