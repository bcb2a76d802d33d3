"""JSON prompt suites, and the files that may lie beside one: what may stand in them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff.config.entries import MessageTable, ScorerEntry
from bakeoff.core.values import Json

OverZero = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class TestEntry(msgspec.Struct, kw_only=True):
    """One test as it stands in the file; keys that are not here are kept as metadata.

    `prompt` or `messages` is required. Where both are there, `messages` go to a chat API and
    `prompt` goes to a completions API; a run says so where they ask different things. `id`,
    messages, `parameters`, `expected`, `scorers`, `pass_threshold`, the time limit and `api_type`
    are the test's identity.
    """

    id: str
    prompt: str | None = None
    messages: list[MessageTable] | None = None
    literal: bool | None = None
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
    """Read where it lies beside the suite and the suite has no `api_config`."""

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
    literal: bool = False


class CategoriesFile(msgspec.Struct, kw_only=True):
    """Read where it lies beside the suite.

    Where it or `test_categories` lists a test, that is the category it is counted in; else it is
    the test's own `category`. `TestRunner.execute_category` takes every test that a category lists.
    """

    categories: dict[str, CategoryEntry] = {}
