"""A run of an agent benchmark in sum: what `summary.json` says, and a line for each agent."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from bakeoff.core.record import Status
from bakeoff.core.values import Json
from bakeoff.stats.role_fidelity import RoleFidelity

_KEYS = ("status", "checkpoint_path", "log_path", "result_path", "error")


def in_words(agent: str, entries: Sequence[Mapping[str, Json]]) -> str:
    """Return how *agent* did, in one line."""
    statuses = Counter(str(entry["status"]) for entry in entries)
    ends = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "nothing was run"
    scores = [score for entry in entries if isinstance(score := entry["score"], float)]
    if not scores:
        return f"agent {agent}: {ends}; nothing was scored"
    passed = sum(entry["passed"] is True for entry in entries)
    return f"agent {agent}: {ends}; {passed} passed, mean score {fmean(scores):.3f}"


def summary_of(
    entries: Mapping[str, Mapping[str, Json]],
    fidelity: RoleFidelity,
    *,
    planned: int,
    finished: bool,
) -> dict[str, Json]:
    """Return what `summary.json` says of a run; *entries* are by the names of their trials."""
    known = entries.values()
    return {
        "total_tests": planned,
        "successful_tests": sum(e["status"] == Status.COMPLETED.value for e in known),
        "passed_tests": sum(e["passed"] is True for e in known),
        "finished": finished,
        "results": [{**_whose(e), **{key: e[key] for key in _KEYS if key in e}} for e in known],
        "role_fidelity": {
            "conversations": fidelity.conversations,
            "turns": fidelity.turns,
            "marked_conversations": fidelity.marked_conversations,
            "marked_turns": dict(fidelity.marks),
            "failures": fidelity.failures,
            "failures_touched": len(fidelity.touched),
            "touched": [
                {**_whose(entries[one.trial]), "trial": one.trial, "marks": dict(one.marks)}
                for one in fidelity.touched
            ],
        },
    }


def _whose(entry: Mapping[str, Json]) -> dict[str, Json]:
    return {"agent_id": entry["agent_id"], "test_case_id": entry["test_case"]}
