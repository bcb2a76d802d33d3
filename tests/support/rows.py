"""Rows of a ledger, as tests of the statistics need them."""

from typing import Any

from bakeoff.core.record import TrialRow


def row(task_id: str = "a", score: float | None = 1.0, **rest: Any) -> TrialRow:
    """A trial that ended well; the others are told apart by what is said in *rest*."""
    fields: dict[str, object] = {
        "task_id": task_id,
        "category": None,
        "candidate_id": "m",
        "rollout": 0,
        "status": "completed",
        "score": score,
        "passed": None if score is None else score >= 1,
        "fault_boundary": None,
        "fault_transient": None,
        "attempts": 1,
        "elapsed_s": 1.0,
        "model_s": 0.5,
        "first_token_s": None,
        "requests": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "cost_usd": None,
    }
    return TrialRow(**{**fields, **rest})


def fault(task_id: str = "a", **rest: Any) -> TrialRow:
    """A trial that the endpoint broke."""
    fields: dict[str, object] = {"fault_boundary": "provider", "fault_transient": True}
    return row(task_id, None, status="faulted", **{**fields, **rest})
