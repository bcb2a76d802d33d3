"""Which setting holds: runtime override > test > metadata > config file > default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from bakeoff._lib.redact import public_url
from bakeoff.app.known_secrets import variables_of
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task
from bakeoff.formats.suite import API_TYPES, ApiConfig, Metadata, model_of
from bakeoff.frontends.test_runner.config import RunnerConfig
from bakeoff.frontends.test_runner.results import APIConfiguration

T = TypeVar("T")

_GRACE_S = 5.0  # the test's own limit must strike first: it says whose time ran out


@dataclass(frozen=True, kw_only=True)
class ApiOverride:
    """The arguments of `configure_api`; empty where it was never called."""

    endpoint: str = ""
    model: str = ""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    timeout: float | None = None
    retry_attempts: int | None = None
    retry_delay: float | None = None


@dataclass(frozen=True, kw_only=True)
class Layers:
    """All settings, from the weakest to the strongest.

    `own_endpoint` is whether the operator named the file with the `api_config`, and not the suite.
    """

    config: RunnerConfig
    metadata: Metadata
    override: ApiOverride
    own_endpoint: bool = False

    @property
    def api(self) -> APIConfiguration:
        """The endpoint as it will be asked."""
        api, defaults = self._endpoint, self.config.api_defaults
        retries = self.metadata.global_settings.default_retry_attempts
        return APIConfiguration(
            endpoint=api.endpoint,
            model=api.model,
            headers=dict(api.headers),
            timeout=self._timeout(None),
            retry_attempts=_first(self.override.retry_attempts, retries, defaults.retry_attempts),
            retry_delay=_first(self.override.retry_delay, defaults.retry_delay),
        )

    @property
    def has_api(self) -> bool:
        """Whether an endpoint is configured."""
        return bool(self.override.endpoint or self.metadata.api_config)

    @property
    def delay_s(self) -> float:
        """How long to wait between two tests that run one after the other."""
        in_metadata = self.metadata.global_settings.delay_between_tests
        return _first(in_metadata, self.config.execution_defaults.sequential_delay)

    @property
    def results_directory(self) -> Path:
        """Where results are written during an execution."""
        in_metadata = self.metadata.global_settings.output_directory
        return Path(_first(in_metadata, self.config.output_settings.results_directory))

    @property
    def save_raw(self) -> bool:
        """Whether the API's own JSON is kept."""
        in_metadata = self.metadata.global_settings.save_raw_responses
        return _first(in_metadata, self.config.execution_defaults.save_raw_responses)

    @property
    def most_workers(self) -> int | None:
        """The upper limit for workers."""
        return self.metadata.execution_modes.concurrent.max_workers

    def workers(self, wish: int | None) -> int:
        """Return how many tests run at once where *wish* was asked for."""
        in_metadata = self.metadata.execution_modes.concurrent.default_workers
        workers = _first(wish, in_metadata, self.config.execution_defaults.concurrent_workers)
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, not {workers}")
        return min(workers, self.most_workers or workers)

    def tasks(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return *tasks*, each with the time it has."""
        return tuple(replace(t, time_s=self._timeout(_own_timeout(t))) for t in tasks)

    def model(self, tasks: Sequence[Task]) -> ModelSpec:
        """Return the model that is to answer *tasks*, which have their times."""
        api = self.api
        spec = model_of(self._endpoint, self.metadata.global_settings)
        settings = {
            **spec.settings,
            "timeout_s": max((t.time_s or 0.0 for t in tasks), default=0.0) + _GRACE_S,
            "max_retries": api.retry_attempts,
            "retry_delay_s": api.retry_delay,
            "retry_backoff": self.config.api_defaults.retry_backoff,
            "keep_raw": self.save_raw,
        }
        spec = replace(spec, settings=settings)
        return replace(spec, may_read=None) if self._is_own else self._allowed(spec)

    def _allowed(self, spec: ModelSpec) -> ModelSpec:
        """Return a model that the suite names; raise where it wants a variable that is not allowed."""
        allowed = self.config.suite_access.allow_env
        if refused := [name for name in variables_of(spec) if name not in allowed]:
            raise UsageError(
                f"the suite wants the value of your environment variable {refused[0]} for its own "
                f"endpoint, {public_url(spec.base_url or '')}; if that is right, allow it with "
                f'"suite_access": {{"allow_env": ["{refused[0]}"]}} in the config of TestRunner, or '
                "name the file yourself with load_test_metadata"
            )
        return replace(spec, may_read=allowed)

    @property
    def _is_own(self) -> bool:
        """Whether the endpoint and its credentials come from the operator, not from the suite."""
        known, override = self.metadata.api_config, self.override
        if self.own_endpoint or not (known and override.endpoint):
            return self.own_endpoint or bool(override.endpoint)
        return known.endpoint != override.endpoint or override.headers is not None

    def sends_prompt(self, task: Task) -> bool:
        """Whether *task* is sent to a completions API, which takes one text."""
        # here: it brings an HTTP client along
        from bakeoff.models.adapters.openai_compatible import Endpoint, first_api

        if not self.has_api:
            return False
        api = self._endpoint
        named = api.type if api.type in API_TYPES else None
        wishes = (task.api_type, named, Endpoint.of(api.endpoint).api_type)
        return first_api(*wishes) == "completions"

    @property
    def _endpoint(self) -> ApiConfig:
        known, override = self.metadata.api_config, self.override
        if not override.endpoint:
            if known is None:
                raise UsageError(
                    "no API is configured: call configure_api(endpoint, model), or load metadata "
                    "with an `api_config`"
                )
            return known
        if known is not None and known.endpoint == override.endpoint:
            if override.headers is None:
                return msgspec.structs.replace(known, model=override.model)
            # headers of the operator's stand for whatever a suite would have sent
            key = known.api_key if self.own_endpoint else None
            return msgspec.structs.replace(
                known, model=override.model, headers=dict(override.headers), api_key=key
            )
        # another server: keys and headers meant for the first one are not sent to it
        named = override.endpoint.rstrip("/").endswith("/completions")
        return ApiConfig(
            endpoint=override.endpoint,
            model=override.model,
            headers=dict(override.headers or {}),
            type=known.type if known and not named else None,
        )

    def _timeout(self, own: float | None) -> float:
        api = self.metadata.api_config
        return _first(
            self.override.timeout,
            own,
            self.metadata.global_settings.default_timeout_seconds,
            api.timeout if api else None,
            self.config.api_defaults.timeout,
        )


def _own_timeout(task: Task) -> float | None:
    return task.time_s if task.metadata.get("timeout_seconds") is not None else None


def _first(*values: T | None) -> T:
    """Return the first value that is set; the last one always is."""
    return next(value for value in values if value is not None)
