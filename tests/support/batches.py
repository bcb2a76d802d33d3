"""Batches whose results are known beforehand, in a real ledger: for reports, not for the engine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from bakeoff._lib.redact import Redactor
from bakeoff.core.candidate import AgentSpec, Candidate, Conditions, Limits, ModelSpec
from bakeoff.core.outcome import Outcome, Spent, Usage
from bakeoff.core.plan import Block, Plan
from bakeoff.core.record import Attempt, Fault, Score, Status
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Message, ScorerSpec, Task, ToolCall
from bakeoff.core.values import Json
from bakeoff.core.workspace import Change, SandboxSpec
from bakeoff.frontends.batch.files import Batch, BatchState
from bakeoff.stores.folders import write_manifest
from bakeoff.stores.ledger_writer import SqliteStore

PATCH = """\
diff --git a/greeter/messages.py b/greeter/messages.py
index 5b1c1a4..9b8a7d2 100644
--- a/greeter/messages.py
+++ b/greeter/messages.py
@@ -1,6 +1,6 @@
 \"\"\"What the greeter says.\"\"\"
~
-GREETING = "Helo, {name}!"
+GREETING = "Hello, {name}!"
~
 def greet(name):
     return GREETING.format(name=name)
""".replace("~\n", " \n")  # a blank line that both sides have
INSTRUCTION = """\
# Task: Fix the typo in the greeting

**Difficulty**: Easy

## Requirements
- `greet("Ada")` returns `Hello, Ada!`

## Success Criteria
- [ ] The greeting is spelled right
"""
LIMIT_S = 120.0
BEGAN = 1_763_270_000.0


def _transcript(words: str = "") -> tuple[Message, ...]:
    call = ToolCall(id="c1", name="run", arguments='{"command": "grep -rn Helo ."}')
    return (
        Message(role="assistant", content="I look for the word first.", tool_calls=(call,)),
        Message(role="tool", content="exit code 0\n./greeter/messages.py:3:GREETING = ...",
                tool_call_id="c1"),
        Message(role="assistant", content=words or "Done: it says Hello now.",
                reasoning="One word, one file."),
    )  # fmt: skip


def solved(seconds: float, *, prompts: int = 4, tokens: int = 2400, cost: float | None = None,
           words: str = "", patch: str = PATCH, number: int = 1) -> Attempt:  # fmt: skip
    """An attempt whose work passed the check."""
    return _attempt(seconds, prompts, tokens, cost, status=Status.COMPLETED, value=1.0,
                    words=words, patch=patch, number=number)  # fmt: skip


def failed(seconds: float, *, prompts: int = 6, tokens: int = 4100,
           cost: float | None = None) -> Attempt:  # fmt: skip
    """An attempt whose work did not pass."""
    return _attempt(seconds, prompts, tokens, cost, status=Status.COMPLETED, value=0.0)


def timed_out(prompts: int = 9, tokens: int = 8800) -> Attempt:
    """An attempt that was cut at its time limit."""
    return _attempt(LIMIT_S, prompts, tokens, None, status=Status.LIMITED, value=0.0,
                    why=f"the time limit of {LIMIT_S:g} s ran out")  # fmt: skip


def solved_at_limit(prompts: int = 3, tokens: int = 1800) -> Attempt:
    """An attempt that was cut at its time limit with work that passes."""
    return _attempt(LIMIT_S, prompts, tokens, None, status=Status.LIMITED, value=1.0,
                    why=f"the time limit of {LIMIT_S:g} s ran out")  # fmt: skip


def unchecked(seconds: float) -> Attempt:
    """An attempt that nobody checked."""
    return _attempt(seconds, 3, 900, None, status=Status.COMPLETED, value=None)


def broken(message: str = "HTTP 503: the queue is full") -> Attempt:
    """An attempt that the endpoint broke."""
    return Attempt(
        number=1, status=Status.FAULTED, started_at=BEGAN, elapsed_s=2.0,
        fault=Fault(boundary="provider", message=message, transient=True),
        spent=Spent(requests=1),
    )  # fmt: skip


def _attempt(seconds: float, prompts: int, tokens: int, cost: float | None, *, status: Status,
             value: float | None, words: str = "", patch: str = PATCH, why: str | None = None,
             number: int = 1) -> Attempt:  # fmt: skip
    lines = patch.splitlines()
    change = Change(
        patch=patch,
        files=sum(line.startswith("diff ") for line in lines),
        added=sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        removed=sum(line.startswith("-") and not line.startswith("---") for line in lines),
    )
    told = "2 of 2 tests passed" if value else "1 of 2 tests failed: test_the_greeting"
    score = () if value is None else (
        Score(scorer="tests", value=value, explanation=told,
              details={"output": f"Ran 2 tests in 0.001s\n{told}\n"}),
    )  # fmt: skip
    usage = Usage(input_tokens=tokens - 400, output_tokens=400, cost_usd=cost)
    return Attempt(
        number=number, status=status, started_at=BEGAN, elapsed_s=seconds + 1.5,
        outcome=Outcome(answer="Done.", transcript=_transcript(words), stop_reason=why or "stop",
                        change=change),
        scores=score, score=value, passed=None if value is None else value == 1.0,
        spent=Spent(requests=prompts, usage=usage, model_s=seconds * 0.8),
        phases={"set-up": 0.4, "agent": seconds, "grading": 1.1},
    )  # fmt: skip


def write_batch(output: Path, attempts: Mapping[str, Sequence[Attempt]], *, checked: bool = True,
                title: str = "Fix the typo in the greeting") -> Batch:  # fmt: skip
    """Write a batch in which each model made these attempts, one for each rollout."""
    batch = Batch(folder=output / "batch_20251116_050640")
    batch.folder.mkdir(parents=True)
    rollouts = max(map(len, attempts.values()))
    task = Task(id="fix_typo", name=title, messages=(Message(role="user", content=INSTRUCTION),),
                scorers=(ScorerSpec(name="tests"),) if checked else ())  # fmt: skip
    candidates = tuple(_candidate(name) for name in attempts)
    plan = Plan(
        blocks=(Block(tasks=(task,), candidates=candidates, rollouts=rollouts),),
        conditions=Conditions(limits=Limits(time_s=LIMIT_S)),
    )
    batch.remember(BatchState(task="fix_typo.md", parallel=1, machine=MACHINE, sessions=(BEGAN,)))
    asyncio.run(_fill(batch, plan, attempts))
    served = {c.model.full_name: SERVED for c in candidates if c.model.provider == "ollama"}
    manifest = Manifest(
        run="run", name="fix_typo", created_at="2025-11-16T05:06:40+00:00", bakeoff="0",
        python="3", platform="Linux", planned=len(plan), tasks=1, plan=plan.digest,
        candidates=candidates, conditions=plan.conditions, served=served,
        sandbox=SandboxSpec(name="bubblewrap"),
    )  # fmt: skip
    write_manifest(batch.run, manifest, Redactor())
    return batch


MACHINE: dict[str, Json] = {
    "cpu": "A processor with a name", "cores": 8, "memory_bytes": 33_600_000_000,
    "os": "Debian GNU/Linux 12 (bookworm), Linux 6.1", "python": "3.11.2", "bakeoff": "0.1.0",
    "ollama": "0.5.4", "models": {},
}  # fmt: skip
SERVED: dict[str, Json] = {"digest": "9f" * 32, "size_bytes": 98_000_000, "quantization": "Q4_1",
          "context_length": 8192, "family": "llama", "parameter_count": 134_515_008}  # fmt: skip


def _candidate(name: str) -> Candidate:
    provider, _, model = name.partition("/")
    label, _, real = model.partition("=")
    spec = ModelSpec(provider=provider, name=real or label, label=label if real else None)
    return Candidate(id=f"shell+{spec.label or name}", model=spec, agent=AgentSpec(name="shell"))


async def _fill(batch: Batch, plan: Plan, attempts: Mapping[str, Sequence[Attempt]]) -> None:
    store = SqliteStore(batch.run)
    store.freeze(plan)
    given = dict(zip((c.id for c in plan.candidates), attempts.values(), strict=True))
    for trial in plan:
        mine = given[trial.candidate.id]
        if trial.rollout < len(mine):
            await store.append(trial, mine[trial.rollout])
    await store.close()
