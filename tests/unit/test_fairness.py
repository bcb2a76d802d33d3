"""Candidates that were not run under the same conditions: said where it is a mistake, silent where it is the question."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bakeoff.core.candidate import AgentSpec, Candidate, Conditions, Limits, ModelSpec
from bakeoff.core.values import Json
from bakeoff.stats.fairness import asked_in, unequal, unequal_settings
from bakeoff.stats.summarize import summarize
from support.plans import plan, task
from support.rows import row


def asked(name: str, id: str | None = None, **parameters: Json) -> Candidate:  # noqa: A002
    model = ModelSpec(provider="ollama", name=name, parameters=parameters)
    return Candidate(id=id or name, model=model)


def notes(*candidates: Candidate, of_task: Mapping[str, Json] | None = None) -> list[str]:
    return list(unequal_settings(plan(task(parameters=of_task or {}), candidates=candidates)))


def test_a_temperature_that_only_one_model_has_is_said() -> None:
    assert notes(asked("a", temperature=0), asked("b", temperature=0), asked("c")) == [
        "not run under the same conditions: temperature is 0 (a, b), not set (c); a difference may come from that, "
        "so there is no verdict on them unless it is forced (bakeoff summarize --force)"
    ]


@pytest.mark.parametrize(
    "candidates",
    [
        [asked("a"), asked("b")],
        [asked("a", temperature=0), asked("b", temperature=0.0)],
        [asked("a", max_tokens=64), asked("b", max_completion_tokens=64)],
        [asked("a", num_ctx=4096), asked("b")],
        [asked("a", "cold", temperature=0), asked("a", "warm", temperature=1)],
        [asked(name, f"{name}{heat}", temperature=heat) for name in ("a", "b") for heat in (0, 1)],
        [asked("a", temperature=1)],
    ],
    ids=["nothing", "same", "names", "own kind", "one model", "full sweep", "alone"],
)
def test_what_is_equal_or_the_question_itself_is_not(candidates: list[Candidate]) -> None:
    assert notes(*candidates) == []


def test_a_sweep_that_only_one_model_has_is_said() -> None:
    (note,) = notes(
        asked("a", "cold", temperature=0),
        asked("a", "warm", temperature=1),
        asked("b", temperature=0),
    )
    assert "temperature is 0 (cold, b), 1 (warm)" in note


def test_what_the_tasks_set_for_all_counts_where_a_model_sets_nothing() -> None:
    both = asked("a", max_tokens=64), asked("b")
    assert notes(*both, of_task={"max_tokens": 64}) == []
    (note,) = notes(*both, of_task={"max_tokens": 128})
    assert "the limit of tokens is 64 (a), 128 (b)" in note


def test_agents_with_unequal_time_are_said_and_many_names_are_cut() -> None:
    many = [replace(asked(f"m{n}"), agent=AgentSpec(name="shell")) for n in range(5)]
    fast = replace(asked("x"), agent=AgentSpec(name="codex", time_s=60))
    assert notes(*many, fast) == [
        "not run under the same conditions: the time limit is not set (m0, m1, m2 and 2 more), 60 s (x); "
        "a difference may come from that, "
        "so there is no verdict on them unless it is forced (bakeoff summarize --force)"
    ]


def test_a_script_is_asked_nothing() -> None:
    scripted = Candidate(id="s", model=ModelSpec(provider="scripted", name="echo"))
    assert notes(asked("a", temperature=0), scripted) == []


def test_a_summary_has_it_among_its_notes() -> None:
    given = plan(task(), candidates=[asked("a", top_p=0.9), asked("b")])
    assert [note for note in summarize(given, []).notes if "same conditions" in note] == [
        "not run under the same conditions: top_p is 0.9 (a), not set (b); a difference may come from that, "
        "so there is no verdict on them unless it is forced (bakeoff summarize --force)"
    ]


def pair(
    first: Candidate, second: Candidate, conditions: Conditions | None = None
) -> tuple[str, ...]:
    one, other = (asked_in(plan(task(), candidates=[c]))[c.id] for c in (first, second))
    return unequal(one, replace(other, conditions=conditions or other.conditions))


def test_between_two_what_differs_beside_the_model_is_named() -> None:
    assert pair(asked("a", temperature=0), asked("b", temperature=1)) == ("temperature is 0 and 1",)
    assert pair(asked("a", reasoning_effort="high", seed=1), asked("b", seed=1)) == (
        "the reasoning effort is high and not set",
    )
    assert pair(asked("a", max_tokens=5), asked("b", num_predict=5)) == ()


def test_between_two_the_setting_that_is_all_that_differs_is_the_question() -> None:
    assert pair(asked("a", temperature=0), asked("a", temperature=1)) == ()


def test_limits_and_roles_are_never_the_question() -> None:
    judge = ModelSpec(provider="openai", name="judge", base_url="http://one")
    other = Conditions(limits=Limits(time_s=5), roles={"judge": judge})
    assert pair(asked("a"), asked("a"), other) == (
        "limits.time_s is not set and 5",
        "the judge is nobody and openai/judge",
    )


def test_a_summary_has_no_verdict_on_two_that_were_not_asked_alike_unless_it_is_forced() -> None:
    tasks = [task(f"t{n}") for n in range(40)]
    given = plan(*tasks, candidates=[asked("a", temperature=0), asked("b", temperature=1)])
    rows = [row(t.id, float(name == "a"), candidate_id=name) for t in tasks for name in "ab"]
    summary = summarize(given, rows)
    assert summary.pairwise is not None
    (found,) = summary.pairwise.pairs
    assert found.difference == 1.0
    assert (found.better, found.verdict) == (
        None, "no decision (different conditions: temperature is 0 and 1)",
    )  # fmt: skip
    assert {(r.best, r.worst) for r in summary.pairwise.ranks} == {(1, 2)}
    forced = summarize(given, rows, force=True).pairwise
    assert forced is not None
    assert forced.pairs[0].better == "a"
