"""The summary of a run on the screen: readable when narrow, the verdict last."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bakeoff.cli.views.tables import console, print_summary, print_verdict
from bakeoff.core.record import TrialRow
from bakeoff.stats.summarize import summarize
from bakeoff.stats.summary import Summary
from support.plans import candidate, plan, scored_by, task
from support.rows import fault, row

NAMES = ("ollama/qwen3:8b-instruct-q4_K_M", "openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5")
RIGHT = {NAMES[0]: 30, NAMES[1]: 16, NAMES[2]: 4}


def run(names: Sequence[str] = NAMES, *, count: int = 32, planned: int | None = None) -> Summary:
    tasks = [
        task(f"t{n:02}", scorers=scored_by("exact"), category=("algebra", "geometry")[n % 2])
        for n in range(planned or count)
    ]
    rows = [found for name in names for found in _rows(name, count)]
    given = plan(*tasks, candidates=[candidate(name) for name in names], rollouts=2)
    return summarize(given, rows, run="20261118-0012")


def _rows(name: str, count: int) -> list[TrialRow]:
    found = []
    for n in range(count):
        more = {"candidate_id": name, "category": ("algebra", "geometry")[n % 2], "load_s": 0.1}
        score = float(n < RIGHT.get(name, 8))
        found.append(row(f"t{n:02}", score, **more))
        again = (
            fault(f"t{n:02}", rollout=1, **more)
            if n in (3, 9)
            else row(f"t{n:02}", score, rollout=1, **more)
        )
        found.append(again)
    return found


def shown(summary: Summary, width: int) -> str:
    file = io.StringIO()
    out = Console(file=file, width=width)
    print_summary(summary, folder=Path("runs/20261118-0012"), out=out)
    print_verdict(summary, out=out)
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_names_and_scores_stay_readable_at_any_width(width: int) -> None:
    text = shown(run(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for name in NAMES:
        assert name in text
    for figure in ("0.938", "0.500", "0.125", "97%"):
        assert figure in text


def test_a_narrow_table_has_a_line_for_the_name_and_the_figures_with_their_heads_below() -> None:
    lines = [line.rstrip() for line in shown(run(), 40).splitlines()]
    at = lines.index(f" {NAMES[0]}")
    assert lines[at + 1].startswith("   score 0.938")
    assert "95 % interval [0." in " ".join(lines[at + 1 : at + 4])


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_verdict_is_the_last_thing_said_and_is_short(width: int) -> None:
    text = shown(run(), width)
    last = " ".join(text.rstrip().rsplit("\n\n", 1)[-1].split())
    best = f"verdict: {NAMES[0]} is the best of 3: it solves 43.8 of 100 tasks more than"
    assert last.startswith(f"{best} {NAMES[1]}, the next (")
    assert last.endswith(")")
    assert text.count("verdict:") == 1
    assert " note:" not in last


def test_one_candidate_ends_with_its_score() -> None:
    text = shown(run(NAMES[:1]), 120)
    assert text.rstrip().splitlines()[-1].startswith(f"result: {NAMES[0]} scores 0.938, between")


def test_a_run_that_is_not_over_says_so_in_its_verdict() -> None:
    text = shown(run(planned=60), 160)
    assert text.rstrip().splitlines()[-1].startswith("verdict so far: ")


def test_what_holds_for_several_candidates_is_printed_once() -> None:
    text = shown(run(), 160)
    assert text.count("went into loading") == 1
    assert text.count("interval by effective-task wilson, 32 tasks") == 1
    assert text.count("trials that ran faulted") == 1


def test_where_nobody_can_be_compared_the_last_line_says_why() -> None:
    given = plan(*(task(f"t{n}") for n in range(3)), candidates=[candidate("a"), candidate("b")])
    text = shown(summarize(given, [], run="r"), 120)
    assert text.rstrip().splitlines()[-1] == "verdict so far: no candidates can be compared"


def test_what_rich_has_a_picture_for_is_printed_as_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = console()
    out.print("model :thumbs_up:")
    assert capsys.readouterr().out.strip() == "model :thumbs_up:"
