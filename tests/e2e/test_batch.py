"""One task, many models, as a person runs it: real boxes, a real clean room, models on loopback."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bakeoff.reports.comparison import COLUMNS
from support.batch_scene import (
    HANGS,
    LAZY,
    NO_OLLAMA,
    QUICK,
    RUNNER,
    SOLVES,
    BatchScene,
    Cast,
    Part,
    sleepers,
    write_config,
    write_task,
)
from support.cli import bakeoff
from support.coding_tasks import FIX
from support.loopback import Loopback
from support.parts import require


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def scene(tmp_path: Path, urls: Mapping[str, str], *, checked: bool = True, **rest: object) -> BatchScene:  # fmt: skip
    return BatchScene(folder=tmp_path, task=write_task(tmp_path, checked=checked),
                      config=write_config(tmp_path, urls, **rest))  # fmt: skip


def everywhere(server: Loopback, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, server.url)


def test_all_models_run_and_the_tree_of_reports_is_written(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES, "quick": QUICK, "lazy": LAZY}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "quick", "lazy"))
        ended = batch.run()
        asked = len(server.requests)
    assert ended.code == 0, ended.err
    assert {path.name for path in batch.batch.iterdir()} == {
        "batch.json", "run", "comparison_report.json", "comparison_report.html",
        "comparison_report.csv", "solver_result.json", "quick_result.json", "lazy_result.json",
    }  # fmt: skip
    report, results = batch.report, batch.results
    assert (report["models_tested"], report["successful"], report["failed"]) == (3, 2, 1)
    assert {name: r["success"] for name, r in results.items()} == {
        "solver": True, "quick": True, "lazy": False,
    }  # fmt: skip
    solver = results["solver"]
    assert (solver["prompts_sent"], solver["human_interventions"]) == (3, 0)
    assert (solver["files_modified"], solver["lines_added"], solver["lines_removed"]) == (1, 1, 1)
    assert solver["tokens"] == 3 * 120
    assert solver["display_name"] == "The solver"
    assert sum(r["prompts_sent"] for r in results.values()) == asked
    assert "the check failed" in results["lazy"]["error"]
    places = report["ranking_places"]["most_efficient"]
    assert [place["model"] for place in places] == ["quick", "solver"]
    assert report["rankings"]["most_efficient"] == "quick", "a name, as other programs read it"
    assert json.loads((batch.batch / "solver_result.json").read_text()) == solver
    assert [list(row)[: len(COLUMNS)] for row in batch.rows] == [list(COLUMNS)] * 3
    assert report["machine_info"]["cores"] == len(os.sched_getaffinity(0))
    assert "The lazy: the check failed: " in ended.out, "why, in a line"
    assert "single observation" in ended.out
    assert "\N{FIRST PLACE MEDAL}" in ended.out


def test_the_run_inside_is_one_of_ours(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"))
        assert batch.run().code == 0
        seen = len(server.requests)
        shown = bakeoff("show", batch.batch / "run", folder=tmp_path / "io")
        again = bakeoff("eval", batch.batch / "run", folder=tmp_path / "io")
        assert len(server.requests) == seen, "grading again asks nobody"
    assert "add@shell+The solver#0" in shown.out
    assert again.code == 0, again.err


def test_nothing_solved_is_a_failure_of_the_batch(tmp_path: Path) -> None:
    with Cast({"lazy": LAZY}).server() as server:
        batch = scene(tmp_path, everywhere(server, "lazy"))
        ended = batch.run()
    assert ended.code == 1
    assert "no model solved the task" in ended.out
    assert batch.report["rankings"]["fastest"] is None
    assert batch.report["ranking_places"]["fastest"] == []


def test_without_a_check_the_result_is_unchecked_and_never_a_success(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"), checked=False)
        ended = batch.run()
    assert ended.code == 1
    assert batch.results["solver"]["success"] is None
    assert batch.results["solver"]["status"] == "unchecked"
    assert "unchecked" in ended.out


def test_models_are_named_by_name_list_category_and_what_they_are_called(tmp_path: Path) -> None:
    names = ("solver", "quick", "lazy")
    with Cast(dict.fromkeys(names, QUICK)).server() as server:
        batch = scene(tmp_path, everywhere(server, *names), categories={"fast": ["quick", "gone"]})
        complaint = ""
        for number, (wanted, expected) in enumerate({
            "solver": ["solver"], "The lazy, solver": ["lazy", "solver"], "fast": ["quick"],
        }.items(), start=1):  # fmt: skip
            ended = batch.run("--models", wanted)
            assert ended.code == 0, ended.err
            report = json.loads((batch.batches[-1] / "comparison_report.json").read_text())
            assert [r["model"] for r in report["results"]] == expected
            assert len(batch.batches) == number
            complaint = ended.err
        assert "no model 'gone' is there" in complaint
        unknown = batch.run("--models", "nobody")
    assert unknown.code == 1
    assert "no model 'nobody' is there; there are: solver, quick, lazy" in unknown.err
    assert len(batch.batches) == 3, "a mistake leaves no batch behind"


def test_without_any_model_it_says_in_three_lines_what_to_do(tmp_path: Path) -> None:
    batch = BatchScene(folder=tmp_path, task=write_task(tmp_path), config=None)
    with batch.start("--config", write_config(tmp_path, {})) as running:
        ended = running.wait()
    assert ended.code == 1
    lines = ended.err.strip().splitlines()
    assert len(lines) == 3
    for line, told in zip(lines, ("ollama list", "models_config.yaml", "API keys"), strict=True):
        assert told in line
    assert batch.batches == []


def test_a_hanging_model_is_stopped_in_time_with_its_processes_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    before = set(sleepers())
    with Cast({"hangs": HANGS, "quick": QUICK}).server() as server:
        batch = scene(tmp_path, everywhere(server, "hangs", "quick"))
        ended = batch.run("--timeout", "5")
    assert ended.code == 0, ended.err
    hangs = batch.results["hangs"]
    assert 4 <= hangs["completion_time"] <= 6
    assert (hangs["success"], hangs["status"]) == (False, "timed out")
    assert hangs["error"] == "the time limit of 5 s ran out"
    assert batch.results["quick"]["success"] is True
    assert set(sleepers()) <= before, "processes of the model that hung are left"


def test_parallel_is_faster_where_endpoints_are_independent(tmp_path: Path) -> None:
    slow = Part(commands=("true",) * 4, pause_s=0.4)
    names = ("a", "b", "c")
    spent = {}
    with (
        Cast(dict.fromkeys(names, slow)).server() as one,
        Cast(dict.fromkeys(names, slow)).server() as two,
        Cast(dict.fromkeys(names, slow)).server() as three,
    ):
        urls = dict(zip(names, (one.url, two.url, three.url), strict=True))
        batch = scene(tmp_path, urls)
        for flag in ("", "--parallel"):
            ended = batch.run(*([flag] if flag else []))
            assert ended.code == 1, ended.err  # nobody solves anything here
            report = json.loads((batch.batches[-1] / "comparison_report.json").read_text())
            spent[flag] = report["total_time"]
    assert spent["--parallel"] < spent[""] * 0.7


def test_parallel_never_asks_a_model_more_at_once_than_its_limit(tmp_path: Path) -> None:
    slow = Part(commands=("true",) * 3, pause_s=0.4)
    peaks = {}
    for limit in (1, 8):
        cast = Cast({"slow": slow, "quick": LAZY})
        folder = tmp_path / str(limit)
        folder.mkdir()
        with cast.server() as server:
            urls = everywhere(server, "slow", "quick")
            batch = scene(folder, urls, settings={"max_concurrency": limit})
            assert batch.run("--parallel", "--rollouts", "2").code == 1  # nobody solves it
        peaks[limit] = cast.peak["slow"]
    assert peaks == {1: 1, 8: 2}


def test_parallel_never_asks_an_endpoint_more_at_once_than_its_limit(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    slow = Part(commands=("true",) * 3, pause_s=0.4)
    peaks = {}
    for limit in (2, 8):
        folder = tmp_path / str(limit)
        folder.mkdir()
        with Cast(dict.fromkeys(names, slow)).server() as server:
            # one server, named without the path that its models have
            endpoints = {server.url.removesuffix("/v1"): {"max_concurrency": limit}}
            batch = scene(folder, everywhere(server, *names), endpoints=endpoints)
            assert batch.run("--parallel").code == 1  # nobody solves it
            peaks[limit] = server.peak_in_flight
        assert len(batch.results) == 4
    assert peaks == {2: 2, 8: 4}


def test_work_that_passes_though_its_agent_was_killed_is_said_and_is_not_the_fastest(
    tmp_path: Path,
) -> None:
    lingers = Part(commands=(FIX, *HANGS.commands))
    with Cast({"lingers": lingers, "quick": QUICK}).server() as server:
        batch = scene(tmp_path, everywhere(server, "lingers", "quick"))
        ended = batch.run("--timeout", "5", "--parallel")
    assert ended.code == 0, ended.err
    said = "success, stopped at limit"
    assert f"The lingers: {said} in 5." in ended.err, "as it comes"
    assert f"◷ {said}" in ended.out
    assert "The lingers: the time limit of 5 s ran out; the work done by then" in ended.out
    result = batch.results["lingers"]
    assert (result["success"], result["status"], result["rollouts_timed_out"]) == (True, said, 1)
    assert {row["model"]: row["status"] for row in batch.rows} == {"lingers": said, "quick": "success"}  # fmt: skip
    assert said in (batch.batch / "comparison_report.html").read_text()
    fastest = ended.out.partition("Fastest")[2].partition("Most Efficient")[0]
    assert "The quick" in fastest
    assert "The lingers" not in fastest
    assert not sleepers()


def test_an_endpoint_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    with Cast({"quick": QUICK}).server() as server:
        batch = scene(tmp_path, everywhere(server, "quick"), endpoints={"olama": {"rpm": 60}})
        ended = batch.run()
        assert not server.requests
    assert ended.code == 1
    assert (
        "'olama' is neither a URL (http://...) nor a provider; did you mean 'ollama'?" in ended.err
    )
    assert batch.batches == []


def test_rollouts_give_rates_intervals_and_rank_ranges(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES, "quick": QUICK}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "quick"))
        ended = batch.run("--rollouts", "4", "--parallel")
    assert ended.code == 0, ended.err
    quick = batch.results["quick"]
    assert (quick["rollouts_passed"], quick["success_rate"]) == (4, 1.0)
    assert quick["success_interval"]["method"] == "wilson"
    assert quick["time_to_solve"]["solved"] == 4
    ranked = batch.report["ranking_places"]["most_efficient"]
    places = {p["model"]: p["rank_range"] for p in ranked}
    assert places == {"quick": [1, 1], "solver": [2, 2]}, "2 prompts and 3, four times each"
    assert not any("single observation" in note for note in batch.report["notes"])


def test_a_judge_decides_by_the_criteria_where_there_is_no_check(tmp_path: Path) -> None:
    verdict = Part(commands=(), final='{"reasoning": "The sum is right.", "score": 10}')
    with Cast({"solver": SOLVES, "judge": verdict}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "judge"), checked=False)
        ended = batch.run("--judge", "judge")
        told = [a.prompt for a in server.requests if a.body["model"] == "judge"]
    assert ended.code == 0, ended.err
    assert list(batch.results) == ["solver"], "who judges does not compete"
    assert batch.results["solver"]["success"] is True
    assert "`add(2, 3)` is 5" in told[0]
    assert "+    return a + b" in told[0], "the judge sees the change"


def test_a_judge_with_nothing_to_do_is_told_so(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES, "judge": LAZY}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "judge"))
        ended = batch.run("--judge", "judge")
        assert {asked.body["model"] for asked in server.requests} == {"solver"}
    assert ended.code == 0, ended.err
    assert "the judge is not asked: the task has a check of its own" in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--models", ""), "matches no model"),
        (("--sandbox", "dokcer"), "did you mean 'docker'?"),
        (("--agent", "shel"), "did you mean 'shell'?"),
        (("--interventions", "2"), "--interventions needs --instructor"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_batch(
    tmp_path: Path, words: tuple[str, str], told: str
) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"))
        ended = batch.run(*words)
        assert server.requests == []
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
    assert told in ended.err
    assert batch.batches == []


def test_one_model_under_two_names_with_other_settings_competes_with_itself(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"))
        config = json.loads(batch.config.read_text())
        (model,) = config["models"]
        config["models"] = [
            {**model, "display_name": f"At {t}", "settings": {"temperature": t}} for t in (0, 1)
        ]
        batch.config.write_text(json.dumps(config))
        ended = batch.run()
        asked = [a.body["temperature"] for a in server.requests]
        seen = len(server.requests)
        again = batch.run("--resume", batch.batch.name)
        assert len(server.requests) == seen
    assert (ended.code, again.code) == (0, 0), ended.err
    assert asked == [0, 0, 0, 1, 1, 1]
    assert list(batch.results) == ["At 0", "At 1"]
    assert {p.name for p in batch.batch.glob("*_result.json")} == {"At_0_result.json", "At_1_result.json"}  # fmt: skip


def test_the_instructor_steps_in_and_each_time_is_an_intervention(tmp_path: Path) -> None:
    asks = Part(commands=(), final="Shall I repair it?")
    helps = Part(commands=(), final="Yes. Look at the sign.")
    with Cast({"asks": asks, "boss": helps}).server() as server:
        batch = scene(tmp_path, everywhere(server, "asks", "boss"))
        ended = batch.run("--instructor", "boss", "--interventions", "2")
    assert ended.code == 1, ended.err
    assert batch.results["asks"]["human_interventions"] == 2


def test_a_finished_batch_is_resumed_without_asking_anybody(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES, "lazy": LAZY}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "lazy"))
        assert batch.run().code == 0
        seen, before = len(server.requests), batch.results
        again = batch.run("--resume", batch.batch.name)
        assert again.code == 0, again.err
        moved = batch.run("--resume", batch.batch.name, "--sandbox", "local")
        assert len(server.requests) == seen
    assert batch.results == before
    assert "began in sandbox" not in again.err
    assert "began in sandbox 'bubblewrap' and continues in 'local'" in moved.err


def test_a_model_that_broke_is_tried_again_and_one_that_failed_is_not(tmp_path: Path) -> None:
    cast = Cast({"solver": SOLVES, "lazy": LAZY})
    with cast.server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "lazy"))
    with cast.server() as elsewhere:  # the first server is gone: its port answers nobody
        write_config(tmp_path, {"solver": server.url, "lazy": elsewhere.url})
        first = batch.run()
        assert first.code == 1
        assert batch.results["solver"]["status"] == "error"
        assert batch.results["lazy"]["status"] == "failed"
        seen = len(elsewhere.requests)
        again = batch.run("--resume", batch.batch.name)
        assert len(elsewhere.requests) == seen, "a wrong result is a result"
    assert "Resume the batch" in first.out
    told = first.err.splitlines()[-1]
    assert told.startswith("some trials faulted; once that is fixed, run those again with: uv run ")
    assert told.endswith(f"--sandbox bubblewrap --resume {batch.batch.name}")
    assert again.code == 1
    assert batch.results["solver"]["rollouts"][0]["attempts"] > 1


def test_a_server_that_is_down_is_waited_for_as_long_as_was_said(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"))
    write_config(tmp_path, {"solver": server.url}, settings={"max_retries": 2})
    ended = batch.run("--give-up-after", "0.1s")  # by now nobody answers at its port
    assert ended.code == 6, ended.err
    *_, why, step = ended.err.splitlines()
    assert why.startswith(f"given up: {server.url.removesuffix('/v1')}: no answer for ")
    assert step.endswith(f"--give-up-after 0.1s --resume {batch.batch.name}")
    assert batch.results["solver"]["status"] == "not run"


def test_more_models_and_more_rollouts_may_join_a_batch(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES, "quick": QUICK}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "quick"))
        assert batch.run("--models", "solver").code == 0
        seen = len(server.requests)
        ended = batch.run("--models", "quick", "--resume", batch.batch.name)
        assert ended.code == 0, ended.err
        assert len(server.requests) == seen + 2, "only the new model was asked"
        assert list(batch.results) == ["solver", "quick"]
        assert batch.run("--rollouts", "2", "--resume", batch.batch.name).code == 0
    assert [r["rollouts_passed"] for r in batch.results.values()] == [2, 2]


def test_another_task_text_timeout_or_parameter_is_refused_with_what_differs(
    tmp_path: Path,
) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"))
        assert batch.run().code == 0
        resume = ("--resume", batch.batch.name)
        seen = len(server.requests)
        slower = batch.run("--timeout", "7", *resume)
        other_agent = batch.run("--agent", "direct", *resume)
        write_config(tmp_path, everywhere(server, "solver"), settings={"temperature": 0.9})
        warmer = batch.run(*resume)
        write_config(tmp_path, everywhere(server, "solver"))
        (tmp_path / "add" / "repo" / "calc.py").write_text("def add(a, b):\n    return a * b\n")
        files = batch.run(*resume)
        batch.task.write_text(batch.task.read_text() + "\nBe quick.\n")
        text = batch.run(*resume)
        other = batch.task.rename(tmp_path / "other.md")
        renamed = BatchScene(folder=tmp_path, task=other, config=batch.config).run(*resume)
        assert len(server.requests) == seen
    assert (slower.code, warmer.code, files.code, text.code, renamed.code) == (1, 1, 1, 1, 1)
    assert "limits.time_s" in slower.err
    assert other_agent.code == 1
    assert "is a batch with the agent 'shell', not with 'direct'" in other_agent.err
    assert "model.parameters.temperature" in warmer.err
    assert "task 'add' differs in workspace.files" in files.err
    assert "messages" in text.err
    assert "is a batch of the task 'add', not of 'other'" in renamed.err
    assert json.loads((batch.batch / "comparison_report.json").read_text())["successful"] == 1


def test_a_batch_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver"))
        assert batch.run().code == 0
        ended = batch.run("--resume", "batch_20200101_000000")
    assert ended.code == 1
    assert "there is no batch 'batch_20200101_000000'" in ended.err


def test_no_key_reaches_any_file_of_the_batch(tmp_path: Path) -> None:
    leaks = Part(commands=(), final="My key is sk-very-secret-value-1234, says the header.")
    with Cast({"leaks": leaks}).server() as server:
        batch = scene(tmp_path, everywhere(server, "leaks"))
        config = json.loads(batch.config.read_text())
        config["models"][0]["api_key"] = "${BATCH_TEST_KEY}"
        batch.config.write_text(json.dumps(config))
        ended = batch.run(env={"BATCH_TEST_KEY": "sk-very-secret-value-1234"})
        assert server.requests[0].headers["Authorization"] == "Bearer sk-very-secret-value-1234"
    assert ended.code == 1
    for path in batch.folder.rglob("*"):
        if path.is_file():
            assert b"sk-very-secret" not in path.read_bytes(), path


def test_a_missing_key_leaves_a_model_out_of_all_and_is_an_error_by_name(tmp_path: Path) -> None:
    with Cast({"solver": SOLVES, "keyed": SOLVES}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "keyed"))
        config = json.loads(batch.config.read_text())
        config["models"][1]["api_key"] = "${NOT_SET_ANYWHERE}"
        batch.config.write_text(json.dumps(config))
        ended = batch.run()
        named = batch.run("--models", "keyed")
    assert ended.code == 0, ended.err
    assert list(batch.results) == ["solver"]
    assert "keyed is left out: NOT_SET_ANYWHERE not set" in ended.err
    assert named.code == 1
    assert "NOT_SET_ANYWHERE" in named.err


def test_on_a_terminal_every_model_is_a_row_that_lives(tmp_path: Path) -> None:
    slow = Part(commands=("true", "cat calc.py"), pause_s=0.5)
    with Cast({"solver": slow, "quick": QUICK}).server() as server:
        batch = scene(tmp_path, everywhere(server, "solver", "quick"))
        seen = _on_a_terminal(batch.words(), {"OLLAMA_HOST": NO_OLLAMA})
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert re.search(r"model\s+result\s+time\s+prompts\s+tokens\s+cost\s", plain), "80 columns"
    assert "0 of 2 models done" in plain
    assert "1 of 2 models done" in plain
    assert re.search(r"The solver\s+\S running\s+[\d.]+ m?s\s+[12]\s+(120|240)", plain)
    assert re.search(r"The quick\s+· waiting", plain)
    assert re.search(r"The quick\s+✓ success", plain)
    assert "\N{FIRST PLACE MEDAL} The quick" in plain, "the rankings at the end have their medals"


def _on_a_terminal(words: list[str | Path], env: dict[str, str]) -> str:
    """Return what a program shows on a terminal of its own."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [str(word) for word in words], stdin=child, stdout=child, stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40", **env},
        start_new_session=True,
    )  # fmt: skip
    os.close(child)
    seen, end = bytearray(), time.monotonic() + 60
    try:
        while time.monotonic() < end:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            seen += piece
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        os.close(parent)
    return seen.decode(errors="replace")


def test_help_names_every_option_of_the_documents(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(RUNNER), "--help"], capture_output=True, text=True,
                          timeout=60, check=True, cwd=tmp_path)  # fmt: skip
    for option in ("--task", "--models", "--output", "--parallel", "--timeout", "--resume"):
        assert option in done.stdout
    wrong = subprocess.run([sys.executable, str(RUNNER), "--timeout", "0"], capture_output=True,
                           text=True, timeout=60, check=False)  # fmt: skip
    assert wrong.returncode == 2
