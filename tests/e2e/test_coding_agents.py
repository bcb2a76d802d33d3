"""Real coding agents solve a real task in real boxes, with nothing but the gateway to talk to.

Only the model is played: a server on loopback with a key, behind our own adapter, meter and gateway.
"""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.agents.programs.command import ClaudeCode, Codex, Continue, GeminiCli, NamedProgram
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.outcome import Outcome
from bakeoff.core.record import Status
from bakeoff.core.sandbox import Sandbox
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from bakeoff.sandboxes.containers.sandbox import Container
from support.coding_agents import VERSIONS, installed
from support.coding_tasks import write_fix_add
from support.container_engines import PYTHON, engine
from support.parts import require
from support.scripted_llm import Script, ScriptedLlm, scripted_llm
from support.trial_room import FIX, TEST, TrialRoom, broken_repo, repair_task, trial_room

KEY = "sk-canary-0123456789abcdef"
LOOK = (  # all that an agent in the box can see of variables, arguments, files and networks
    "{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline;"
    ' find "$HOME" /app /tmp /run -type f ! -name seen.bin -exec cat {} +;'
    " } > seen.bin 2>/dev/null; cut -s -d: -f1 /proc/net/dev > networks.txt"
)
SOLVES = Script(
    steps=(f"{LOOK}; {FIX}", f"{TEST} && echo it passes"), final="Fixed add() in calc.py."
)
Use = Callable[[NamedProgram, TrialRoom], Awaitable[Outcome]]

pytestmark = pytest.mark.timeout(600)  # the first run installs the agents and makes an image


async def solve(agent: NamedProgram, trial: TrialRoom) -> Outcome:
    return await agent.solve(repair_task(), trial.context)


class Played:
    """What came of one trial: the outcome, the parts, and what the server saw."""

    def __init__(self, left: Outcome, trial: TrialRoom, llm: ScriptedLlm, folder: Path) -> None:
        self.left, self.trial, self.llm, self.folder = left, trial, llm, folder

    def check(self) -> None:
        """The work is done, everything was counted, and the key stayed where it belongs."""
        tested = subprocess.run(TEST.split(), cwd=self.folder, capture_output=True, check=False)
        assert tested.returncode == 0, tested.stderr.decode()
        self.check_counts()
        self.check_secrets()
        assert self.left.stop_reason is None
        assert self.left.answer == SOLVES.final
        assert self.left.log

    def check_counts(self) -> None:
        spent = self.trial.meter.spent
        assert self.llm.prompts >= 3
        assert (spent.requests, spent.usage.input_tokens, spent.usage.output_tokens) == (
            self.llm.prompts,
            self.llm.input_tokens,
            self.llm.output_tokens,
        )

    def check_secrets(self) -> None:
        seen = (self.folder / "seen.bin").read_bytes()
        door = self.trial.context.model_access
        assert door is not None
        assert door.token.encode() in seen  # so it looked where a key would have been
        assert KEY.encode() not in seen
        assert KEY not in str(self.left)
        assert (self.folder / "networks.txt").read_text().split() == ["lo"]


def play(
    kind: type[NamedProgram],
    sandbox: Sandbox,
    tmp_path: Path,
    *,
    image: str | None = None,
    use: Use = solve,
) -> Played:
    agent = installed(kind)
    folder = broken_repo(tmp_path / "app")

    async def main(llm: ScriptedLlm) -> Played:
        mounts = agent.mounts()
        async with trial_room(sandbox, folder, llm, mounts=mounts, image=image) as trial:
            return Played(await use(agent, trial), trial, llm, folder)

    with ExitStack() as stack:
        return asyncio.run(main(stack.enter_context(scripted_llm(SOLVES, key=KEY))))


def bubblewrap() -> Bubblewrap:
    missing = Bubblewrap.available()
    require("bubblewrap", missing is None, str(missing))
    return Bubblewrap()


def named(kind: type[NamedProgram]) -> str:
    return kind.program.name


@pytest.mark.parametrize("kind", VERSIONS, ids=named)
def test_it_solves_a_task_in_bubblewrap_without_network(
    kind: type[NamedProgram], tmp_path: Path
) -> None:
    played = play(kind, bubblewrap(), tmp_path)
    played.check()
    assert played.left.notes["version"] == VERSIONS[kind]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("docker", Codex),
        ("docker", ClaudeCode),
        ("docker", Continue),
        ("docker", GeminiCli),
        ("podman", Codex),
        ("podman", Continue),
    ],
    ids=lambda part: part if isinstance(part, str) else named(part),
)
def test_it_solves_a_task_in_a_container_without_network(
    name: str, kind: type[NamedProgram], tmp_path: Path
) -> None:
    running = engine(name)
    container = Container(name=running.name, environment=running.environment)
    play(kind, container, tmp_path, image=running.with_python()).check()
    assert running.containers() == []


@pytest.mark.parametrize("kind", [Codex, ClaudeCode, Continue], ids=named)
def test_it_goes_on_with_its_session_when_it_is_told_something(
    kind: type[NamedProgram], tmp_path: Path
) -> None:
    async def then_more(agent: NamedProgram, trial: TrialRoom) -> Outcome:
        await agent.solve(repair_task(), trial.context)
        return await agent.resume(repair_task(), trial.context, "--and thank you")

    played = play(kind, bubblewrap(), tmp_path, use=then_more)
    played.check()
    last = str(played.llm.asked[-1].body["messages"])
    assert "--and thank you" in last
    assert "it passes" in last  # what it did before is still part of the conversation


def run_of(
    kinds: Sequence[type[NamedProgram]], llm: ScriptedLlm, task: Path, **options: Any
) -> bakeoff.Run:
    """A whole run of Bakeoff; the key of the server is in the environment, as a user has it."""
    model = ModelSpec(
        provider="openai-compatible",
        name="scripted",
        base_url=llm.url,
        api_key="${KEY_OF_THE_SERVER}",
    )
    agents = [
        AgentSpec(name=named(kind), settings={"executable": installed(kind).executable})
        for kind in kinds
    ]
    return bakeoff.run(task, agents=agents, models=[model], **options)


@pytest.mark.parametrize(
    ("sandbox", "kinds"),
    [("bubblewrap", (Codex, ClaudeCode, Continue, GeminiCli)), ("docker", (Codex, Continue))],
    ids=["bubblewrap", "docker"],
)
def test_a_run_of_several_agents_is_graded_in_clean_rooms_and_adds_up(
    sandbox: str,
    kinds: tuple[type[NamedProgram], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sandbox == "docker":
        running = engine("docker")
        running.with_python()
        monkeypatch.setenv("DOCKER_HOST", running.environment["DOCKER_HOST"])
    else:
        bubblewrap()
    image = f'[box]\nimage = "{PYTHON}"\n' if sandbox == "docker" else ""
    task = write_fix_add(tmp_path, settings=image)
    monkeypatch.setenv("KEY_OF_THE_SERVER", KEY)
    with scripted_llm(SOLVES, key=KEY) as llm:
        run = run_of(kinds, llm, task, sandbox=sandbox, output=tmp_path / "runs")
        attempts = [record.attempt for record in run.trials()]
    assert [(a.score, a.fault) for a in attempts] == [(1.0, None)] * len(kinds)
    assert sum(a.spent.requests for a in attempts) == llm.prompts
    assert sum(a.spent.usage.input_tokens or 0 for a in attempts) == llm.input_tokens
    assert sum(a.spent.usage.output_tokens or 0 for a in attempts) == llm.output_tokens
    for attempt in attempts:
        assert attempt.outcome is not None
        assert attempt.outcome.change is not None
        assert "+    return a + b" in attempt.outcome.change.patch
    kept = [path for path in run.folder.rglob("*") if path.is_file()]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("key", "status", "boundary"),
    [(KEY, Status.LIMITED, None), ("sk-another", Status.FAULTED, "provider")],
    ids=["limit", "key"],
)
def test_a_spent_limit_is_a_result_and_a_refused_key_is_a_fault_of_the_provider(
    key: str,
    status: Status,
    boundary: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bubblewrap()
    monkeypatch.setenv("KEY_OF_THE_SERVER", key)
    with scripted_llm(SOLVES, key=KEY) as llm:
        run = run_of(
            [Codex],
            llm,
            write_fix_add(tmp_path),
            sandbox="bubblewrap",
            output=tmp_path / "runs",
            overrides={"limits.requests": "2"},
        )
    (attempt,) = [record.attempt for record in run.trials()]
    assert attempt.status is status
    assert (attempt.fault and attempt.fault.boundary) == boundary
    assert attempt.score == (1.0 if boundary is None else None)
    assert attempt.spent.requests == llm.prompts == (2 if boundary is None else 0)
