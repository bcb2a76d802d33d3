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
    return (
        f"agent {agent}: {ends}; {passed} of {len(scores)} passed, mean score {fmean(scores):.3f}"
    )


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
        **_counts(list(known), planned),
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


def _counts(entries: Sequence[Mapping[str, Json]], planned: int) -> dict[str, Json]:
    """Return how many conversations there are of each kind.

    `successful_tests`, those that were held to their end, are the passed, the failed and the
    unscored ones; with the faulted, the cancelled and those not run yet they are all of them. One
    that a limit ended and that nothing scored has failed.
    """
    statuses = Counter(str(entry["status"]) for entry in entries)
    held = [entry for entry in entries if Status(str(entry["status"])).final]
    passed = sum(entry["passed"] is True for entry in held)
    unscored = sum(
        entry["passed"] is None and entry["status"] == Status.COMPLETED.value for entry in held
    )
    return {
        "total_tests": planned,
        "successful_tests": len(held),
        "passed_tests": passed,
        "failed_tests": len(held) - passed - unscored,
        "unscored_tests": unscored,
        "faulted_tests": statuses[Status.FAULTED.value],
        "cancelled_tests": statuses[Status.CANCELLED.value],
        "not_run_tests": planned - len(entries),
    }


def _whose(entry: Mapping[str, Json]) -> dict[str, Json]:
    return {"agent_id": entry["agent_id"], "test_case_id": entry["test_case"]}
