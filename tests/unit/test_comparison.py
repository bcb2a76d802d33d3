"""The plain forms of a comparison: the keys and columns that others read."""

import csv
import io
import json
import math
from pathlib import Path
from typing import cast

from bakeoff.frontends.batch.files import compare, write_report
from bakeoff.reports.comparison import COLUMNS, as_csv, as_json, in_order
from bakeoff.reports.wording import phrases
from support.batches import broken, failed, solved, solved_at_limit, timed_out, write_batch

RESULT_KEYS = {
    "model", "task", "success", "error", "completion_time", "prompts_sent", "human_interventions",
    "files_modified", "lines_added", "lines_removed", "timestamp",
}  # fmt: skip
REPORT_KEYS = {
    "batch_id", "task", "timestamp", "total_time", "models_tested", "successful", "failed",
    "machine_info", "results", "rankings", "summary_stats",
}  # fmt: skip
STATISTICS = {
    "avg_completion_time", "median_completion_time", "min_completion_time", "max_completion_time",
    "avg_prompts", "avg_interventions",
}  # fmt: skip


def test_json_has_every_key_of_the_documents_and_no_nan(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, {"ollama/a": [solved(3.0)], "ollama/b": [broken()]})
    data = as_json(compare(batch))
    assert set(data) >= REPORT_KEYS
    results = data["results"]
    assert isinstance(results, list)
    assert all(set(result) >= RESULT_KEYS for result in results)
    assert data["rankings"] == {
        "fastest": "ollama/a",
        "most_efficient": "ollama/a",
        "least_intervention": "ollama/a",
        "time_to_solve": "ollama/a",
    }
    assert set(cast("dict[str, object]", data["summary_stats"])) == STATISTICS
    json.dumps(data, allow_nan=False)


def test_a_fault_has_its_reason_and_no_figures(tmp_path: Path) -> None:
    write_report(batch := write_batch(tmp_path, {"ollama/b": [broken("it fell over")]}))
    result = json.loads((batch.folder / "ollama_b_result.json").read_text())
    assert result["error"] == "provider: it fell over"
    assert (result["success"], result["completion_time"]) == (False, None)


def test_csv_has_the_columns_of_the_documents_first_and_a_line_for_each_model(
    tmp_path: Path,
) -> None:
    batch = write_batch(tmp_path, {"ollama/a": [solved(3.0)] * 2, "ollama/b": [failed(5.0)] * 2})
    head, *rows = csv.reader(io.StringIO(as_csv(compare(batch))))
    assert tuple(head[: len(COLUMNS)]) == COLUMNS
    assert [row[:4] for row in rows] == [
        ["ollama/a", "fix_typo", "true", "3.0"],
        ["ollama/b", "fix_typo", "false", "5.0"],
    ]


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    names = ["openai/=cmd|x=a", "openai/@sum=b", "openai/+1=c"]
    batch = write_batch(tmp_path, {name: [solved(1.0)] for name in names})
    rows = list(csv.DictReader(io.StringIO(as_csv(compare(batch)))))
    assert all(not cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())


def test_a_broken_rollout_is_counted_apart_from_those_that_failed(tmp_path: Path) -> None:
    batch = write_batch(
        tmp_path,
        {
            "ollama/a": [solved(3.0), failed(5.0), broken()],
            "ollama/b": [broken("gone")] * 3,
            "ollama/c": [failed(4.0)],
        },
    )
    data = as_json(compare(batch))
    results = data["results"]
    assert isinstance(results, list)
    assert [r["status"] for r in results] == [
        "1 of 2 solved, 1 broken",
        "3 broken",
        "0 of 1 solved",
    ]
    assert [r["success_rate"] for r in results] == [0.5, None, 0.0]
    assert (data["successful"], data["failed"], data["broken"]) == (0, 2, 1)
    assert data["notes"] == [
        "Broken, which says nothing about the model: ollama/a (1 of 3 rollouts), ollama/b (3 of 3 "
        "rollouts). Resume the batch to retry.",
        "Not run yet: ollama/c (2 of 3 rollouts). Resume the batch to run the rest.",
    ]


def test_a_success_that_was_stopped_at_the_limit_is_said_in_every_form(tmp_path: Path) -> None:
    batch = write_batch(
        tmp_path,
        {
            "ollama/a": [solved_at_limit()] * 2,
            "ollama/b": [solved(9.0), solved_at_limit()],
            "ollama/c": [solved(100.0)] * 2,
        },
    )
    comparison = write_report(batch)
    reason = "the time limit of 120 s ran out; the work done by then passes the check"
    results = {r["model"]: r for r in as_json(comparison)["results"]}
    assert [(r["status"], r["rollouts_timed_out"], r["error"]) for r in results.values()] == [
        ("2 of 2 solved, 2 of them stopped at limit", 2, reason),
        ("2 of 2 solved, 1 of them stopped at limit", 1, reason),
        ("2 of 2 solved", 0, None),
    ]
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison))))
    assert [row["rollouts_timed_out"] for row in rows] == ["2", "1", "0"]
    assert [row["error"] for row in rows] == [reason, reason, ""]
    page = (batch.folder / "comparison_report.html").read_text()
    assert "1 of them stopped at limit" in page
    assert reason in page
    assert [one.model for one in in_order(comparison)] == ["ollama/c", "ollama/b", "ollama/a"]


def test_the_total_time_is_that_of_the_sessions_until_their_last_attempt(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, {"ollama/a": [solved(30.0)], "ollama/b": [timed_out()]})
    assert math.isclose(compare(batch).total_time_s, 121.5)


def test_figures_are_written_as_people_read_them() -> None:
    assert [phrases.seconds(s) for s in (None, 0.42, 3.21, 59.97, 125, 4210)] == [
        "–", "420 ms", "3.2 s", "1 min 00 s", "2 min 05 s", "1 h 10 min",
    ]  # fmt: skip
    assert [phrases.duration(s) for s in (0.2, 59.4, 59.97, 7260)] == [
        "0 s", "59 s", "1 min 00 s", "2 h 01 min",
    ]  # fmt: skip
    assert [phrases.number(n) for n in (None, 3, 2.5, 1234, 1234.6)] == [
        "–", "3", "2.5", "1,234", "1,235",
    ]  # fmt: skip
    assert [phrases.dollars(d) for d in (None, 0, 0.0412, 12.5)] == ["–", "$0.00", "$0.0412", "$12.50"]  # fmt: skip
    assert [phrases.rank_range(*r) for r in ((None, None), (1, 1), (1, 3))] == ["", "1", "1–3"]
    assert [phrases.counted(n, "model") for n in (1, 2)] == ["1 model", "2 models"]
    assert phrases.megabytes(98_000_000) == "98 MB"
