"""What came of a batch, as it is printed: readable on a narrow terminal, and no medal for nothing."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bakeoff.cli.batch_running import print_batch
from bakeoff.core.record import Attempt
from bakeoff.frontends.batch.files import compare
from support.batches import broken, failed, solved, solved_at_limit, timed_out, write_batch

ALL = {
    "ollama/quick": [solved(8.0, prompts=2)],
    "ollama/slow": [solved(90.0, prompts=4)],
    "ollama/stopped": [solved_at_limit()],
    "ollama/wrong": [failed(3.0)],
    "ollama/late": [timed_out()],
    "ollama/gone": [broken()],
}


def printed(folder: Path, attempts: Mapping[str, Sequence[Attempt]], width: int = 120) -> list[str]:
    batch = write_batch(folder, attempts)
    text = io.StringIO()
    print_batch(compare(batch), batch.folder, out=Console(file=text, width=width))
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_name_and_result_are_readable_however_narrow_the_terminal_is(
    tmp_path: Path, width: int
) -> None:
    lines = printed(tmp_path, ALL, width)
    table = lines[: next(n for n, line in enumerate(lines) if "error" in line) + 1]
    for name, result in (("quick", "success"), ("wrong", "failed"), ("late", "timed out"), ("gone", "error")):  # fmt: skip
        assert any(name in line and result in line for line in table), "\n".join(table)
    assert ("prompts" in " ".join(table)) == (width >= 80)


def test_there_is_no_medal_for_what_was_not_solved(tmp_path: Path) -> None:
    lines = printed(tmp_path, ALL)
    start = next(n for n, line in enumerate(lines) if line.startswith("Time to solve"))
    assert lines[start + 1 : start + 6] == [
        "  \N{FIRST PLACE MEDAL} ollama/quick: 8.0 s",
        "  \N{SECOND PLACE MEDAL} ollama/slow: 1 min 30 s",
        "  \N{THIRD PLACE MEDAL} ollama/stopped: 2 min 00 s",
        "   4 ollama/wrong: not solved",
        "   5 ollama/late: not solved",
    ]


def test_a_ranking_in_which_all_are_equal_is_one_line(tmp_path: Path) -> None:
    lines = printed(tmp_path, ALL)
    assert "Most Autonomous, by interventions  all equal: 0" in lines


@pytest.mark.parametrize(
    ("attempts", "told"),
    [
        (ALL, "3 of 6 models solved the task; fastest: ollama/quick, 8.0 s, which may be chance"),
        ({"ollama/a": [solved(8.0)]}, "1 of 1 model solved the task; fastest: ollama/a, 8.0 s"),
        ({"ollama/a": [solved_at_limit()]}, "1 of 1 model solved the task"),
        ({"ollama/a": [failed(8.0)]}, "no model solved the task"),
    ],
)
def test_the_last_thing_before_the_report_is_who_solved_it(
    tmp_path: Path, attempts: Mapping[str, Sequence[Attempt]], told: str
) -> None:
    lines = printed(tmp_path, attempts, width=300)
    assert lines[-2] == told
    assert lines[-1].startswith("report: ")
