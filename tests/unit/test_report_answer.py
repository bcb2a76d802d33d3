"""The answer of a run in words, and which tasks are most informative."""

from collections.abc import Sequence

import pytest

from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRow
from bakeoff.reports.html.trials import informativeness
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.decision import Headline, answer
from bakeoff.reports.wording.phrases import in_order, shared_reasons
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.summarize import summarize
from bakeoff.stats.summary import Summary
from support.plans import candidate, plan, scored_by, tasks
from support.rows import fault, row


def bench(*names: str, count: int = 40, rollouts: int = 1) -> Plan:
    given = tasks(count, scorers=scored_by("exact"))
    return plan(*given, candidates=[candidate(name) for name in names], rollouts=rollouts)


def scores(name: str, right: int, *, of: int = 40) -> list[TrialRow]:
    return [row(f"t{n:04}", float(n < right), candidate_id=name) for n in range(of)]


def told(given: Plan, rows: Sequence[TrialRow]) -> Headline:
    return answer(summarize(given, rows))


def test_one_candidate_is_told_with_its_score_and_interval() -> None:
    found = told(bench("solo"), scores("solo", 30))
    assert found.text == "solo scores 0.750, between 0.598 and 0.858 at 95 %."
    assert found.why == "On 40 tasks; interval by wilson, for other tasks like these."
    assert not found.decided


def test_one_task_has_a_score_and_the_reason_why_there_is_no_interval() -> None:
    found = told(bench("solo", count=1), scores("solo", 1, of=1))
    assert found.text == "solo scores 1.000 on 1 task."
    assert found.why == "One task: no variance between tasks to measure."


def test_what_nobody_checked_has_no_score_and_a_way_to_get_one() -> None:
    found = told(bench("solo", count=2), [row("t0000", None, candidate_id="solo")])
    assert found.text == "solo has no score."
    assert "add expected answers or a scorer" in found.why


def test_nothing_recorded_is_no_score_and_no_crash() -> None:
    assert told(bench("solo"), []).text == "solo has no score."
    assert told(bench("a", "b", "c"), []) == Headline(
        text="No candidates can be compared.",
        why="No two candidates have two scored tasks in common.",
    )


def test_a_decision_names_the_better_one_as_it_is_written() -> None:
    found = told(bench("good", "bad"), [*scores("good", 38), *scores("bad", 10)])
    assert found.text == "good solves 70 of 100 tasks more than bad (50.9 to 81.4)."
    assert found.why.startswith("On 40 shared tasks good − bad is +0.700, between +0.5")
    assert found.why.endswith(
        "; equals would differ as much in less than 0.1 % of runs, by chance (McNemar, exact)."
    )
    assert found.decided


def test_where_nothing_is_sure_it_is_said_what_is_missing() -> None:
    found = told(bench("one", "other"), [*scores("one", 21), *scores("other", 20)])
    assert found.text == (
        "No decision between one and other (these 40 tasks would show 0.15 or more; "
        "to show 0.1: about 60)."
    )
    assert not found.decided


def test_the_best_of_many_is_told_with_its_lead_over_the_next() -> None:
    rows = [*scores("low", 2), *scores("top", 40), *scores("mid", 20)]
    found = told(bench("low", "mid", "top"), rows)
    assert found.text.startswith(
        "top is the best of 3: it solves 50 of 100 tasks more than mid, the next ("
    )
    assert found.why.startswith(
        "top is ahead of mid, the next, by 0.500; equals would differ as much in less than 0.1 %"
    )


def test_an_open_race_is_no_decision_although_some_pairs_are_told_apart() -> None:
    rows = [*scores("low", 2), *scores("one", 39), *scores("two", 38)]
    found = told(bench("low", "one", "two"), rows)
    assert found.text == "No decision: the best is one of one, two."
    assert not found.decided


def lettered(**letters: str) -> Summary:
    """Candidates whose letters say what came of each task: 0, 1, or x for a fault."""
    rows = [
        fault(f"t{n:04}", candidate_id=name)
        if letter == "x"
        else row(f"t{n:04}", float(letter), candidate_id=name)
        for name, told in letters.items()
        for n, letter in enumerate(told)
    ]
    return summarize(bench(*letters, count=max(map(len, letters.values()))), rows)


LOW = "1" * 4 + "0" * 36


# the second has the higher score, on the tasks it did not fault on
@pytest.mark.parametrize(
    ("good", "broken"),
    [
        ("1" * 26 + "0" * 14, "1" * 19 + "0" * 8 + "x" * 13),
        ("1" * 33 + "0" * 7, "1" * 26 + "0" + "x" * 13),
    ],
    ids=["a clear lead", "a small lead"],
)
def test_the_headline_has_the_sign_of_its_row_where_coverage_is_unequal(
    good: str, broken: str
) -> None:
    summary = lettered(good=good, broken=broken, low=LOW)
    assert summary.pairwise is not None
    pair = summary.pairwise.pairs[0]
    assert (pair.first, pair.second) == ("good", "broken")
    assert pair.difference is not None
    assert pair.difference > 0
    ahead = f"good is ahead of broken, the next, by {pair.difference:.3f}"
    assert answer(summary).why.startswith(ahead)
    assert [one.candidate for one in in_order(summary)] == ["good", "broken", "low"]


def test_who_stands_behind_for_its_faults_alone_is_not_said_to_be_behind() -> None:
    summary = lettered(good="1" * 20 + "0" * 20, broken="1" * 18 + "x" * 22, low="1" + "0" * 39)
    why = answer(summary).why
    assert "good is ahead of broken" not in why
    assert "good and broken, the next, have the same score on the 18 tasks they share" in why
    turned = lettered(good="0" + "1" * 21 + "0" * 18, broken="1" * 19 + "x" * 21, low="0" * 40)
    assert (
        "On the 19 tasks they share, broken is ahead of good by 0.053; equals would differ as much in 100 % of runs, by chance; it ranks "
        "below good because faulted trials count as 0 in the ranking" in answer(turned).why
    )


def test_a_tie_is_no_lead() -> None:
    rows = [*scores("one", 20), *scores("two", 20), *scores("low", 2)]
    found = told(bench("one", "two", "low"), rows)
    assert "ahead" not in found.why
    assert "one and two, the next, have the same score" in found.why


def test_a_difference_that_is_small_but_sure_is_not_written_as_nothing() -> None:
    assert phrases.amount(-0.0003) == "0.0003"
    assert phrases.amount(0.25) == "0.250"
    assert phrases.amount(0.0) == "0.000"


def test_a_verdict_that_faults_could_turn_is_told_with_what_it_would_come_to() -> None:
    found = answer(lettered(good="1" * 14 + "x" * 16, bad="0" * 14 + "1" * 16))
    assert found.text == (
        "No decision between good and bad (good is better unless more than 4 of the 16 faulted "
        "trials went against it)."
    )
    assert found.why.endswith("With these counted against good it would be −0.067.")
    assert not found.decided


def test_what_holds_for_several_candidates_is_said_once() -> None:
    rows = [
        *scores("a", 20),
        *scores("b", 20),
        *scores("c", 20, of=39),
        fault("t0039", candidate_id="c"),
    ]
    lines = list(shared_reasons(summarize(bench("a", "b", "c"), rows)))
    assert lines[:2] == ["a, b: interval by wilson, 40 tasks", "c: interval by wilson, 39 tasks"]
    assert lines[-1].startswith("c: counting what is missing")


def cell(mean: float | None, *, recorded: int = 1, faulted: int = 0) -> TaskSummary:
    return TaskSummary(task="t", candidate="c", planned=1, recorded=recorded, scored=1, passed=0,
                       faulted=faulted, mean=mean, best=None, interval=None, passes=())  # fmt: skip


def test_tasks_that_separate_tell_most_then_those_that_broke_then_those_that_failed() -> None:
    apart, broke, wrong, right = (
        [cell(1.0), cell(0.0)], [cell(1.0), cell(None, faulted=1)], [cell(0.0)], [cell(1.0)],
    )  # fmt: skip
    nothing = [cell(None, recorded=0)]
    given = [nothing, right, wrong, broke, apart]
    assert sorted(given, key=informativeness) == [apart, broke, wrong, right, nothing]


def test_figures_are_written_alike_wherever_they_stand() -> None:
    assert (phrases.p_value(0.0004), phrases.p_value(0.0321)) == ("< 0.001", "0.032")
    assert phrases.in_runs(0.0004) == "in less than 0.1 % of runs"
    assert (phrases.in_runs(0.0321), phrases.in_runs(1.0)) == (
        "in 3.2 % of runs",
        "in 100 % of runs",
    )
    prices = (0.0, 0.000639, 0.0000412, 0.0123, 1.5)
    assert [*map(phrases.dollars, prices)] == ["$0.00", "$0.00064", "$0.000041", "$0.0123", "$1.50"]
    assert phrases.difference(-0.25) == "−0.250"
    assert phrases.interval(None) == phrases.score(None) == phrases.UNKNOWN
    assert phrases.sentence("it is so.") == "It is so."
    assert phrases.sentence(None) == ""
