"""Runs that the viewer is looked at with: two candidates of which one is worse, and hostile words."""

from dataclasses import replace

from bakeoff.core.outcome import Outcome
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Score, Status
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.workspace import Change
from support.plans import attempt, candidate, plan, scored_by, task

HOSTILE = (
    "<script>document.title = 'owned'; alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
    "</pre></details><style>body{display:none}</style><iframe src='http://127.0.0.1:9/'></iframe>"
    "<a href='javascript:alert(3)'>x</a><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>"
    "{{ 7 * 7 }}{% raw %}\x1b[31mred\x07\x00 \u202egnp.exe\u202c"
)
PATCH = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b</span><script>alert(4)</script>\n"


def squares(names: tuple[str, ...] = ("good", "bad"), rollouts: int = 2) -> Plan:
    given = [
        replace(task(f"t{n:03}", scorers=scored_by("exact")), category="odd" if n % 2 else "even")
        for n in range(12)
    ]
    return plan(*given, candidates=[candidate(name) for name in names], rollouts=rollouts)


def mostly(trial: Trial) -> Attempt:
    number, is_good = int(trial.task.id[1:]), trial.candidate.id == "good"
    if not is_good and number == 3:
        return attempt(status=Status.FAULTED, message="the queue is full")
    return attempt(
        score=float(is_good != (number == 5)), answer=f"an answer of {trial.candidate.id}"
    )


def worked(trial: Trial) -> Attempt:
    """An attempt with everything in it that a page can show."""
    ended = attempt(score=0.5)
    messages = (
        Message(role="assistant", content=HOSTILE, reasoning=f"I think {HOSTILE}",
                tool_calls=(ToolCall(id="c1", name=HOSTILE, arguments='{"command": "ls -l"}'),)),
        Message(role="tool", content="total 0", tool_call_id="c1"),
    )  # fmt: skip
    outcome = Outcome(
        answer=HOSTILE, transcript=messages, raw={"id": HOSTILE}, log=HOSTILE,
        change=Change(patch=PATCH, files=1, added=1, removed=1, left_out=(HOSTILE,)),
    )  # fmt: skip
    score = Score(
        scorer="exact", value=0.5, explanation=f"because {HOSTILE}", details={"output": HOSTILE}
    )
    return replace(ended, outcome=outcome, scores=(score,), phases={"agent": 2.5, HOSTILE: 0.5})
