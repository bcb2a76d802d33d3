"""What is measured: models and their endpoints, agents, and the two together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Self, TypeVar

from bakeoff._lib.digest import digest
from bakeoff._lib.redact import public_environment, public_settings, public_url
from bakeoff._lib.value_object import value_object
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.values import Json

TRANSPORT_SETTINGS = frozenset(
    {
        "adaptive",
        "keep_raw",
        "max_answer_mib",
        "max_concurrency",
        "max_retries",
        "retry_backoff",
        "retry_delay_s",
        "rpm",
        "stream",
        "timeout_s",
        "tpm",
    }
)
"""Settings of a model that say how it is reached, not what it answers."""


@value_object
class Origin:
    """Where a model or an agent was written: `file.toml:3`, and the key there for an address."""

    where: str
    address: str = "base_url"

    @classmethod
    def at(cls, file: PurePath, line: int | None, *, address: str = "base_url") -> Self:
        """Return the place at *line* of *file*."""
        return cls(where=f"{file}{f':{line}' if line else ''}", address=address)


@value_object
class ModelSpec:
    """An endpoint by name, with its settings.

    `base_url`, `api_key` and `headers` may refer to the environment as `${NAME}`; the value is
    read just before it is used and never kept. `base_url_from` says who named the URL: the command
    line, a config or a variable; None without a URL. `may_read` are the variables that may be read where a suite
    named the model; None is all of them. `origin` is for messages alone.
    """

    provider: str
    name: str
    base_url: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Json] = field(default_factory=dict)
    settings: Mapping[str, Json] = field(default_factory=dict)
    label: str | None = None
    base_url_from: str | None = field(default=None, compare=False)
    may_read: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """`provider/name`."""
        return f"{self.provider}/{self.name}" if self.name else self.provider

    def identity(self) -> dict[str, Json]:
        """Return what decides the answers; keys, wherever they stand, headers and retries do not."""
        return {
            "provider": self.provider,
            "name": self.name,
            "base_url": public_url(self.base_url) if self.base_url else self.base_url,
            "parameters": public_settings(self.parameters),
            "settings": public_settings(
                {k: v for k, v in self.settings.items() if k not in TRANSPORT_SETTINGS}
            ),
        }


@value_object
class AgentSpec:
    """An agent by name, with its version and settings.

    `environment` is what its box shows it beyond the task's own, `time_s` how long it may take; a
    sweep over them is a sweep over candidates. `origin` is for messages alone.
    """

    name: str = "direct"
    version: str | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    label: str | None = None
    needs_model: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    time_s: float | None = None
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def identity(self) -> dict[str, Json]:
        """Return what decides how the agent works; a key among its variables does not."""
        own: dict[str, Json] = {}
        if self.environment:
            own["environment"] = public_environment(self.environment)
        if self.time_s is not None:
            own["time_s"] = float(self.time_s)
        return {
            "name": self.name,
            "version": self.version,
            "settings": public_settings(self.settings),
            **own,
        }


@value_object
class PromptSpec:
    """A prompt that candidates are compared with: a template of what a task is asked, by a name.

    `text` takes the place of the task's own prompt, which is its variable `{{prompt}}`; without it
    a task is asked as it stands. `system` takes the place of the system message. The text of a
    `literal` prompt has no variables. `origin` is the file that is the text, or the key in one that
    holds it, for messages alone.
    """

    name: str = ""
    text: str | None = None
    system: str | None = None
    literal: bool = False
    origin: SourceLocation | None = field(default=None, compare=False, repr=False)

    def identity(self) -> dict[str, Json]:
        """Return what a model reads of it; the name is not part of it."""
        literal = {"literal": True} if self.literal else {}
        return {"text": self.text, "system": self.system, **literal}


NO_MODEL = ModelSpec(provider="scripted", name="nobody")
"""The model of an agent that asks none."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Prompt × agent × model: one row of a ranking. `id` is its unique name in the plan."""

    id: str
    model: ModelSpec
    agent: AgentSpec = field(default_factory=AgentSpec)
    prompt: PromptSpec | None = None

    @property
    def scripted(self) -> bool:
        """Whether the answers come from a script: such a candidate is never ranked."""
        return self.model.provider == "scripted"

    def identity(self) -> dict[str, Json]:
        """Return what makes this candidate this one and no other; its name is not part of it."""
        prompt = {} if self.prompt is None else {"prompt": self.prompt.identity()}
        return {"model": self.model.identity(), "agent": self.agent.identity(), **prompt}

    @property
    def solver(self) -> str:
        """The name of the agent and the model without the prompt."""
        agent, model = self.agent, self.model
        if not agent.needs_model:
            return agent.label or agent.name
        name = model.label or model.full_name
        if agent.name == "direct" and not agent.label:
            return name
        return f"{agent.label or agent.name}+{name}"

    @cached_property
    def digest(self) -> str:
        """The digest of the candidate."""
        return digest(self.identity())


@value_object
class Limits:
    """What one attempt may spend; None is no limit. Scoring has its own deadline.

    `interventions` is how often the instructor may step in where an agent asks or is not done.
    """

    time_s: float | None = None
    requests: int | None = None
    output_tokens: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    scoring_s: float | None = 1800.0
    interventions: int = 0

    def identity(self) -> dict[str, Json]:
        """Return the limits that a candidate feels."""
        attended = {"interventions": self.interventions} if self.interventions else {}
        return {
            **attended,
            "time_s": None if self.time_s is None else float(self.time_s),
            "requests": self.requests,
            "output_tokens": self.output_tokens,
            "tokens": self.tokens,
            "cost_usd": None if self.cost_usd is None else float(self.cost_usd),
        }


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Limits and supporting roles, equal for every candidate."""

    limits: Limits = field(default_factory=Limits)
    roles: Mapping[str, ModelSpec] = field(default_factory=dict)
    attempts: int = 2

    def identity(self) -> dict[str, Json]:
        """Return what the conditions change about an answer or its score."""
        return {
            "limits": self.limits.identity(),
            "roles": {name: model.identity() for name, model in sorted(self.roles.items())},
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the conditions."""
        return digest(self.identity())


N = TypeVar("N", int, float)


@value_object
class EndpointLimits:
    """What may go to an endpoint at most; None is no limit. `adaptive` finds how many at once."""

    max_concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    adaptive: bool = True

    def stricter(self, other: "EndpointLimits") -> "EndpointLimits":
        """Return what both allow."""
        return EndpointLimits(
            max_concurrency=_least(self.max_concurrency, other.max_concurrency),
            rpm=_least(self.rpm, other.rpm),
            tpm=_least(self.tpm, other.tpm),
            adaptive=self.adaptive and other.adaptive,
        )

    def divided(self, count: int) -> "EndpointLimits":
        """Return what each of *count* runs may send, so that all together stay within it.

        At least one request at a time is left to each.
        """
        at_once = self.max_concurrency
        return EndpointLimits(
            max_concurrency=None if at_once is None else max(at_once // count, 1),
            rpm=None if self.rpm is None else self.rpm / count,
            tpm=None if self.tpm is None else self.tpm / count,
            adaptive=self.adaptive,
        )


@value_object
class Patience:
    """How long an endpoint that is down is waited for, and how often it is tried meanwhile.

    An endpoint at which nothing has succeeded is given up after so many `equal_rejections` (faults
    that will not pass), or when no server was reached there for `unreached_s`; not with `keep_going`.
    Where it does not wait (`waits`), an outage is not told apart: every request spends its tries.
    """

    waits: bool = True
    give_up_after_s: float = 900.0
    keep_going: bool = False
    equal_rejections: int = 5
    unreached_s: float = 10.0
    first_probe_s: float = 0.1
    longest_probe_s: float = 10.0


@value_object
class EndpointWait:
    """Why requests wait at an endpoint at this moment.

    `next_s` is when the next one may go, None where that depends on one under way; `down_s` is for
    how long the endpoint has been down, with the `reason`, and `given_up_in_s` says for how much
    longer that is waited for.
    """

    endpoint: str
    waiting: int
    under_way: int
    at_once: int | None = None
    next_s: float | None = None
    down_s: float | None = None
    given_up_in_s: float = 0.0
    reason: str = ""


@value_object
class EndpointState:
    """What the limiter of an endpoint does at this moment.

    `at_once` is how many requests may be in flight, None for any number; `per_s` how many a second it has
    learned to send, None where nothing was refused yet; `reason` why the endpoint is down.
    """

    endpoint: str
    under_way: int
    waiting: int
    at_once: int | None = None
    per_s: float | None = None
    reason: str = ""


def _least(a: N | None, b: N | None) -> N | None:
    return b if a is None else a if b is None else min(a, b)
