"""Pairs on the screen: narrow, plain, and not more of them than somebody reads."""

import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from bakeoff.cli.views.tables import print_pairwise
from bakeoff.reports.wording.decision import verdict
from bakeoff.stats.pairwise import CandidateScores, Pairwise, pairwise


@dataclass
class Scored:
    """A task that was scored once."""

    total: float
    passed: int
    n: int = 1


def compared(**marks: str) -> Pairwise:
    """Candidates whose marks are a letter per task: 0, 1, or x for no score."""
    seats = []
    for name, told in marks.items():
        tasks = {
            f"t{n}": Scored(total=float(mark), passed=int(mark))
            for n, mark in enumerate(told)
            if mark != "x"
        }
        seats.append(CandidateScores(candidate=name, tasks={"": tasks}))
    found = pairwise(seats)
    assert found is not None
    return found


def told(found: Pairwise, *, width: int = 80) -> str:
    file = io.StringIO()
    print_pairwise(found, Console(file=file, width=width))
    return file.getvalue() + f"verdict: {verdict(found)}\n"


def ladder(many: int) -> Pairwise:
    """Candidates that each pass ten tasks more than the one before."""
    most = 10 * many
    return compared(**{f"model_{n:02}": ("1" * 10 * n).ljust(most, "0") for n in range(many)})


def row_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f" {name} "))


def test_two_are_a_row_a_verdict_and_what_it_was_told_by() -> None:
    text = told(compared(new="1" * 9 + "0", old="0" * 10))
    assert "+0.900" in row_of(text, "new")
    assert "0.004" in row_of(text, "new")
    assert "A is better" in row_of(text, "new")
    assert "[0.488, 0.982]" in row_of(text, "old")
    assert "on 10 shared tasks; interval by Newcombe; chance by McNemar, exact, for 1 pair" in text
    assert "of 10 tasks, 0 are passed by all candidates and 1 by none" in text
    assert "verdict: new solves 90 of 100 tasks more than old (48.8 to 98.2)" in text
    assert "ranks" not in text  # of two, the verdict says it


def test_the_worse_of_two_may_come_first() -> None:
    text = told(compared(old="0" * 10, new="1" * 10))
    assert "B is better" in text
    assert "verdict: new solves 100 of 100 tasks more than old (60.8 to 100)" in text
    assert "[-1.000, -0.608]" in row_of(text, "new")
    assert "smallest gap" not in text  # all differences are equal: no spread to plan with


def test_what_is_undecided_says_what_is_missing() -> None:
    text = told(compared(a="1" * 5 + "0" * 15, b="0" * 20))
    assert "[0.000, " in text  # the test does not refute 0, and so the interval holds it
    assert (
        "verdict: no decision between a and b (these 20 tasks would show 0.3 or more; "
        "to show 0.1: about 160)"
    ) in text


@pytest.mark.parametrize("many", [2, 5, 6, 15])
@pytest.mark.parametrize("width", [60, 80])
def test_it_fits_and_has_at_most_ten_pairs(many: int, width: int) -> None:
    text = told(ladder(many), width=width)
    table, _, _ = text.partition("verdict:")  # the verdict is for whoever prints it to fold
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in text
    assert "\x1b" not in text
    rows = len(re.findall(r" [AB] is better", text))
    pairs = math.comb(many, 2)
    assert rows == (pairs if pairs <= 10 else min(many - 1, 10))
    more = pairs - rows
    assert (f"{more} more pairs in summary.json" in " ".join(text.split())) == (more > 0)


def test_of_many_those_next_to_each_other_in_rank_are_shown_from_the_top() -> None:
    text = told(ladder(8), width=160)
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(" model_")]
    assert rows[:4] == ["model_06", "model_07", "model_05", "model_06"]
    assert "ranks consistent with the data: model_07 1, model_06 2, model_05 3" in text
    assert "verdict: model_07 is the best of 8" in text


def test_who_may_be_the_best_is_named() -> None:
    found = compared(low="0" * 14, high="1" * 14, near="1" * 13 + "0")
    assert "verdict: no decision: the best is one of high, near" in told(found)
    alike = compared(a="0101", b="0110", c="1100")
    assert "verdict: no decision: any of 3 may be the best" in told(alike)


def test_missing_scores_and_pairs_without_a_test_are_told() -> None:
    text = told(compared(a="1111x1", b="00x000", c="xxxxxx"), width=120)
    assert "2 pairs not compared: no task has a score of both" in text
    assert "excluded, because only one of the two has a score: up to 5 tasks" in text


def test_where_nothing_can_be_compared_there_is_no_table_and_no_verdict() -> None:
    file = io.StringIO()
    print_pairwise(compared(a="1", b="0"), Console(file=file, width=80))
    assert "1 pair not compared: one shared task" in file.getvalue()
    assert "verdict" not in file.getvalue()


def test_a_name_cannot_reach_the_terminal() -> None:
    text = told(compared(**{"evil\x1b[2J\nname": "1111", "b": "0000"}))
    assert "\x1b" not in text


def test_the_statistics_page_shows_what_is_printed_for_its_example() -> None:
    page = (Path(__file__).parents[2] / "docs/background/statistics.md").read_text()
    rows = re.findall(r"^    ([01 ]+)$", page, re.MULTILINE)
    assert len(rows) == 2
    seats = [
        CandidateScores(candidate=name, tasks={"": {
            f"t{n}": Scored(total=task.count("1"), passed=task.count("1"), n=len(task))
            for n, task in enumerate(row.split())
        }})
        for name, row in zip(("one", "other"), rows, strict=True)
    ]  # fmt: skip
    found = pairwise(seats)
    assert found is not None
    printed = [line.rstrip() for line in told(found).splitlines()]
    assert "\n".join(printed).strip() in page
