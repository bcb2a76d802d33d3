"""Rollouts as a person runs them: the script, real boxes, what it leaves, what it says."""

import json
import math
import os
import pty
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import t as student

import bakeoff
from bakeoff._lib.digest import tree_digest
from support.cli import Ended, Running, not_outliving, run, started, until
from support.cli import bakeoff as command
from support.parts import require
from support.prepared_tasks import (
    RUBRIC,
    SCRIPT,
    git,
    write_overrides,
    write_prepared,
    write_repo,
)

SCRIPT_FILE = Path(__file__).parents[2] / "scripts" / "eval_rollouts.py"
ROLLOUTS = (sys.executable, SCRIPT_FILE)
FENCE = "```"

# `good` repairs the file whenever it is asked, `bad` never does; both say when they are done
MODELS = f"""
agent = "shell"
sandbox = "bubblewrap"

[models.good]
model = "scripted/good"
settings.rules = [
  {{ match = "^exit code", reply = "Done." }},
  {{ match = ".", reply = "{FENCE}sh\\nsed -i 's/a - b/a + b/' calc.py && ls -a . .. && env\\n{FENCE}\\n" }},
]

[models.bad]
model = "scripted/bad"
settings.replies = ["I am done."]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with prepared tasks, and the current one."""
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "configs").mkdir()
    for number in (1, 2, 3):
        write_prepared(tmp_path / f"data/tasks/prepared/task_{number}")
    return tmp_path


def _config(name: str, *entries: str, head: str = "parallel = 2") -> str:
    tasks = "".join(f"\n[[tasks]]\n{entry}\n" for entry in entries)
    # keys of the file itself stand before its tables
    Path(f"configs/{name}.toml").write_text(f"{head}\n{MODELS}\n{tasks}")
    return f"configs/{name}.toml"


def _entry(folder: str, model: str, rollouts: int = 1, more: str = "") -> str:
    return (
        f'prepared_dir = "data/tasks/prepared/{folder}"\nmodel = "{model}"\n'
        f"rollouts = {rollouts}\n{more}"
    )


def _script(*words: str | Path, timeout_s: float = 150, **env: str) -> Ended:
    return run([*ROLLOUTS, *words], folder=Path("out").absolute(), env=env, timeout_s=timeout_s)


def _only_rollout(name: str) -> Path:
    (folder,) = Path(f"data/rollouts/{name}").iterdir()
    return folder


def _manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def _results(name: str) -> list[dict[str, Any]]:
    return _manifest(_only_rollout(name))["results"]


def test_a_config_runs_and_leaves_what_the_documents_promise() -> None:
    before = tree_digest(Path("data/tasks"))
    config = _config("bench", _entry("task_1", "good", 2), _entry("task_2", "bad"))
    ended = _script("run", config)
    assert ended.code == 0, ended.err
    folder = _only_rollout("bench")
    ids = [f"{folder.name}-{number}" for number in range(3)]
    lines = ended.out.splitlines()
    assert lines[:4] == [
        f"[rollouts] config={config} name=bench tasks=2 parallel=2",
        f"[rollouts] output={folder}",
        "[rollouts] Running in quiet mode - use -vv for full output",
        "[rollouts] Starting 3 tasks with parallel=2",
    ]
    rule = "(a pass is all tests passing, whatever a judge says)"
    assert sorted(lines[4:-2]) == [
        f"✓ Task {ids[0]} passed: task_1 with shell+good, rollout 0, score 1.000 {rule}",
        f"✓ Task {ids[2]} passed: task_1 with shell+good, rollout 1, score 1.000 {rule}",
        f"✗ Task {ids[1]} failed: task_2 with shell+bad, rollout 0, score 0.000 {rule}",
    ]
    assert lines[-2] == "✗ 3 of 3 tasks completed: 2 passed, 1 failed"
    assert lines[-1] == (f"[rollouts] see the scores with: python {SCRIPT_FILE} summarize {folder}")
    results = _manifest(folder)["results"]
    assert [(r["run_id"], r["status"], r["score"]) for r in results] == [
        (ids[0], "passed", 1.0),
        (ids[1], "failed", 0.0),
        (ids[2], "passed", 1.0),
    ]
    run_dir = Path(results[0]["run_dir"])
    assert "+    return a + b" in (run_dir / "artifacts/diff.patch").read_text()
    found = json.loads((run_dir / "evaluation_results.json").read_text())
    assert found["total_score"] == 1.0
    rubric = found["evaluation"]["rubrics"]["adds"]
    assert (rubric["score"], rubric["test_count"], rubric["tests_passed"]) == (1.0, 1, 1)
    assert found["test_results"]["evaluation/test_add.py"]["success"] is True
    assert tree_digest(Path("data/tasks")) == before
    for command_ in ("summarize", "show"):
        assert command(command_, folder, folder=Path("out")).code == 0


def test_nothing_hidden_is_in_the_box_of_the_agent() -> None:
    _script("run", _config("bench", _entry("task_1", "good")))
    (result,) = _results("bench")
    seen = (Path(result["run_dir"]) / "artifacts/transcript.jsonl").read_text()
    assert "calc.py" in seen
    for name in ("evaluation", "diff.patch", "tb_meta.json", "notes.md", "repo_info.json"):
        assert name not in seen


def test_the_environment_of_an_entry_reaches_the_agent_and_its_time_is_limited() -> None:
    slow = (
        '[models.slow]\nmodel = "scripted/slow"\nsettings.replies = ["'
        f'{FENCE}sh\\nenv; sleep 60\\n{FENCE}\\n"]\n'
    )
    more = 'environment_variables = { LEVEL = "deep", TIMEOUT_SEC = "4" }'
    _config("sweep", _entry("task_1", "good", more=more), _entry("task_1", "slow", more=more))
    Path("configs/sweep.toml").write_text(
        Path("configs/sweep.toml").read_text().replace("\n[[tasks]]", f"\n{slow}\n[[tasks]]", 1)
    )
    ended = _script("run", "configs/sweep.toml")
    assert ended.code == 0, ended.err
    quick, slow_one = _results("sweep")
    assert (quick["status"], slow_one["status"]) == ("passed", "limited")
    assert "LEVEL=deep" in (Path(quick["run_dir"]) / "artifacts/transcript.jsonl").read_text()
    about = json.loads((Path(quick["run_dir"]) / "metadata.json").read_text())
    assert about["environment_variables"] == {"LEVEL": "deep", "TIMEOUT_SEC": "4"}


def test_what_cannot_be_run_is_a_fault_of_its_own_and_the_others_go_on() -> None:
    prepared = Path("data/tasks/prepared")
    (prepared / "no_meta").mkdir()
    (prepared / "bad_json").mkdir()
    (prepared / "bad_json/tb_meta.json").write_text('{"task_id": ')
    write_prepared(prepared / "no_commit", repo={"git_url": "r", "start_commit_sha": "0" * 40})
    write_repo(prepared / "no_commit" / "r")
    write_prepared(
        prepared / "needs_php",
        evaluation={
            "rubrics": [RUBRIC],
            "test_scripts": [{**SCRIPT, "path": "check.php", "content": "<?php exit(0);"}],
        },
    )
    names = ("no_meta", "bad_json", "no_commit", "needs_php", "gone", "task_1")
    ended = _script("run", _config("broken", *(_entry(name, "good") for name in names)))
    assert ended.code == 3
    found = {r["task_id"]: r for r in _results("broken")}
    assert {name: r["status"] for name, r in found.items()} == {
        **dict.fromkeys(names, "faulted"),
        "task_1": "passed",
    }
    for name, said in {
        "no_meta": "prepared/no_meta/tb_meta.json is not there",
        "bad_json": "prepared/bad_json/tb_meta.json:1: not valid JSON",
        "no_commit": "prepared/no_commit/r has no commit 0000",
        "needs_php": "the box has no 'php'",
        "gone": "prepared/gone: there is no such folder",
    }.items():
        assert said in found[name]["fault"]["message"], found[name]["fault"]
        log = Path(found[name]["run_dir"]) / "logs/eval.log"
        assert said in log.read_text()
        assert said in ended.out
    assert not Path(found["needs_php"]["run_dir"], "artifacts/transcript.jsonl").exists()
    assert "✗ 1 of 6 tasks completed: 1 passed, 5 faulted" in ended.out
    again = f"run configs/broken.toml --resume {_only_rollout('broken')}"
    assert f"once that is fixed, run those again with: python {SCRIPT_FILE} {again}\n" in ended.out


def test_a_reference_that_does_not_apply_is_a_fault_that_names_it() -> None:
    Path("data/tasks/prepared/task_1/diff.patch").write_text(
        "--- a/calc.py\n+++ b/calc.py\n@@ -1,1 +1,1 @@\n-something else\n+nothing\n"
    )
    more = 'agent = "oracle"'
    _script("run", _config("oracle", *(_entry(f"task_{n}", "good", more=more) for n in (1, 2))))
    broken, fine = _results("oracle")
    assert (broken["status"], fine["status"]) == ("faulted", "passed")
    assert "prepared/task_1/diff.patch cannot be applied" in broken["fault"]["message"]


def test_overrides_are_seen_only_where_they_are_asked_for_and_the_folder_stays() -> None:
    folder = Path("data/tasks/prepared/task_1")
    write_overrides(
        folder,
        overlay_files={"hint.txt": "a hint"},
        inject_files=[{"path": "injected.py", "content": "x = 1\n"}],
        remove_repo_paths=["cal*.py"],
        overlay_repo_files={"calc.py": "def add(a, b):\n    return a - b  # overridden\n"},
    )
    before = tree_digest(folder)
    with_them, without = (
        _config(name, _entry("task_1", "good", more=f"apply_overrides = {how}"))
        for name, how in (("with", "true"), ("without", "false"))
    )
    for config in (with_them, without, with_them):
        assert _script("run", config).code == 0
    seen = {
        name: (Path(result["run_dir"]) / "artifacts/transcript.jsonl").read_text()
        + (Path(result["run_dir"]) / "artifacts/diff.patch").read_text()
        for name in ("with", "without")
        for folder_ in sorted(Path(f"data/rollouts/{name}").iterdir())
        for result in _manifest(folder_)["results"]
    }
    for word in ("hint.txt", "injected.py", "overridden"):
        assert word in seen["with"]
        assert word not in seen["without"]
    assert tree_digest(folder) == before


def test_the_patch_that_is_left_applies_in_the_repository() -> None:
    _script("run", _config("bench", _entry("task_1", "good")))
    (result,) = _results("bench")
    repository = Path("data/tasks/prepared/task_1/source")
    git(repository, "apply", str(Path(result["run_dir"], "artifacts/diff.patch").absolute()))
    assert "return a + b" in (repository / "calc.py").read_text()


def test_a_rubric_without_tests_is_judged_by_the_diff_or_counts_for_nothing() -> None:
    evaluation = {
        "rubrics": [RUBRIC, {"id": "clear", "criterion": "it reads well", "weight": 3}],
        "test_scripts": [SCRIPT],
    }
    write_prepared(Path("data/tasks/prepared/judged"), evaluation=evaluation)
    config = _config("alone", _entry("judged", "good"))
    with_judge = Path("configs/judged.toml")
    # the judge gives the best grade only where it is shown the change
    verdict = '{\\"reasoning\\": \\"short\\", \\"score\\": %s}'
    with_judge.write_text(
        Path(config).read_text()
        + '[roles.judge]\nmodel = "scripted/judge"\nsettings.rules = [\n'
        + f'  {{ match = "return a . b", reply = "{verdict % 10}" }},\n'
        + f'  {{ match = ".", reply = "{verdict % 1}" }},\n]\n'
    )
    assert _script("run", config).code == 0
    ended = _script("run", str(with_judge))
    assert ended.code == 0, ended.err + ended.out
    found = {}
    for name in ("alone", "judged"):
        (result,) = _results(name)
        folder = Path(result["run_dir"])
        found[name] = json.loads((folder / "evaluation_results.json").read_text())
        page = (folder / "scoring_results.md").read_text()
        assert ("No model judged clear" in page) == (name == "alone")
    assert found["alone"]["total_score"] == 1.0
    assert found["alone"]["evaluation"]["rubrics"]["clear"]["score"] is None
    assert found["alone"]["lm_evaluation"]["score"] is None
    assert found["judged"]["lm_evaluation"]["score"] == 1.0
    assert found["judged"]["evaluation"]["rubrics"]["clear"]["weighted_score"] == 3.0


def test_what_a_test_measures_reaches_the_result_and_the_summary() -> None:
    script = 'print(\'{"custom_metrics": {"code_complexity": 7, "style": "plain"}}\')\n'
    evaluation = {
        "rubrics": [RUBRIC],
        "test_scripts": [SCRIPT, {"path": "m.py", "rubric_id": "adds", "content": script}],
    }
    write_prepared(Path("data/tasks/prepared/measured"), evaluation=evaluation)
    assert _script("run", _config("metrics", _entry("measured", "good", 2))).code == 0
    found = [
        json.loads((Path(r["run_dir"]) / "evaluation_results.json").read_text())
        for r in _results("metrics")
    ]
    assert [f["custom_metrics"] for f in found] == [{"code_complexity": 7, "style": "plain"}] * 2
    summary = (_only_rollout("metrics") / "summary.md").read_text()
    assert "| shell+good | code_complexity | 7 | 2 |" in summary


def test_a_repository_of_its_own_is_taken_at_its_commit() -> None:
    commit = write_repo(Path("origin"))
    Path("origin/calc.py").write_text("broken later")
    git(Path("origin"), "commit", "-qam", "later")
    git(Path("origin"), "bundle", "create", "-q", "../r.bundle", "HEAD")
    for name, url in (("path", str(Path("origin").absolute())), ("bundle", "../../../../r.bundle")):
        repo = {"git_url": url, "start_commit_sha": commit}
        write_prepared(Path(f"data/tasks/prepared/{name}"), repo=repo)
    config = _config("repos", _entry("path", "good", 2), _entry("bundle", "good", 2))
    assert _script("run", config).code == 0
    assert [r["status"] for r in _results("repos")] == ["passed"] * 4


def _three_by_two(*, rollouts: int = 5) -> str:
    """Write 3 tasks x 2 models x 5 rollouts, or fewer, whose verdicts are known beforehand."""
    fix = f"{FENCE}sh\\nsed -i 's/a - b/a + b/' calc.py\\n{FENCE}\\n"
    done = '{ match = "^exit code", reply = "Done." }, { match = "found no command", reply = "no" }'
    Path("configs/grid.toml").write_text(
        f"""
parallel = 8
agent = "shell"
sandbox = "bubblewrap"

[models.one]
model = "scripted/one"
settings.delay_s = 0.3
settings.rules = [{done}, {{ match = "task_3", reply = "no" }}]
settings.replies = ["{fix}", "{fix}", "no", "{fix}", "{fix}"]

[models.two]
model = "scripted/two"
settings.delay_s = 0.3
settings.rules = [{done}, {{ match = "task_2", reply = "{fix}" }}]
settings.replies = ["no", "{fix}", "no", "{fix}", "no"]
"""
        + "".join(
            f'\n[[tasks]]\nprepared_dir = "data/tasks/prepared/task_{n}"\nmodel = "{model}"\n'
            f"rollouts = {rollouts}\n"
            for n in (1, 2, 3)
            for model in ("one", "two")
        )
    )
    for number in (1, 2, 3):
        path = Path(f"data/tasks/prepared/task_{number}/tb_meta.json")
        meta = json.loads(path.read_text())
        meta["lm"]["instructions"] = f"This is task_{number}: make `add` add."
        path.write_text(json.dumps(meta))
    return "configs/grid.toml"


PASSES = {"one": (4, 4, 0), "two": (2, 5, 2)}  # of 5, for the three tasks


def test_thirty_runs_killed_three_times_and_resumed_count_thirty_each_once() -> None:
    config = _three_by_two()
    words: list[str] = ["run", config]
    chance = random.Random(5)
    for _ in range(3):
        with started([*ROLLOUTS, *words], folder=Path("out").absolute()) as running:
            until(lambda: list(Path("data/rollouts/grid").glob("*/run/ledger.sqlite")))
            assert running.kill_after(1.5 + 2 * chance.random()), running.out
        words = ["run", config, "--resume"]
        done = _results("grid")
        assert len({r["trial"] for r in done}) == len(done)
    ended = _script(*words)
    assert ended.code == 0, ended.err + ended.out
    folder = _only_rollout("grid")
    results = _manifest(folder)["results"]
    assert len(results) == 30
    assert len({r["trial"] for r in results}) == len({r["run_id"] for r in results}) == 30
    assert len((folder / "runs.txt").read_text().splitlines()) == 30
    assert len(list((folder / "task_results").iterdir())) == 30
    counts = Counter((r["model"], r["status"]) for r in results)
    assert counts == {
        ("one", "passed"): 8,
        ("one", "failed"): 7,
        ("two", "passed"): 9,
        ("two", "failed"): 6,
    }
    _assert_by_hand(bakeoff.load_run(folder).summary())
    assert "30 runs planned: 30 scored" in (folder / "summary.md").read_text()


def _assert_by_hand(summary: bakeoff.Summary) -> None:
    for name, passed in PASSES.items():
        (found,) = [c.total for c in summary.candidates if c.candidate.endswith(name)]
        means = [count / 5 for count in passed]
        mean = sum(means) / 3
        low, high = _score_interval_by_hand(mean, statistics.variance(means) / 3)
        assert found.score.mean == pytest.approx(mean, abs=1e-6)
        assert found.score.interval is not None
        assert found.score.interval.low == pytest.approx(low, abs=1e-6)
        assert found.score.interval.high == pytest.approx(high, abs=1e-6)
        for rates in found.passes:
            by_hand = sum(
                1 - math.comb(5 - count, rates.k) / math.comb(5, rates.k) for count in passed
            )
            assert rates.pass_at == pytest.approx(by_hand / 3, abs=1e-6)
        assert [rates.k for rates in found.passes] == [1, 2, 3, 4, 5]


def _score_interval_by_hand(mean: float, squared_error: float) -> tuple[float, float]:
    """Wilson's interval of as many tasks as the spread of three is worth, with t for the normal."""
    alike = min(3 * squared_error / (mean * (1 - mean)), 1)
    trusted = 4 * 3 * mean * (1 - mean)
    n = 3 / alike ** (trusted / (trusted + 1.5))
    t2 = student.ppf(0.975, 2) ** 2
    # the proportions p with (p - mean)^2 = t^2 p (1 - p) / n
    a, b, c = 1 + t2 / n, -(2 * mean + t2 / n), mean**2
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def test_stored_work_is_graded_again_by_name_by_stamp_and_by_folder() -> None:
    _script("run", _config("bench", _entry("task_1", "good"), _entry("task_2", "bad")))
    folder = _only_rollout("bench")
    shutil.rmtree("data/runs")
    for words in (["bench", "--latest"], ["bench", "--rollout", folder.name], [str(folder)]):
        ended = _script("eval", *words)
        assert ended.code == 0, ended.err
        assert "| task | model | run | unit | lm | tokens | tools |" in ended.out
    assert [r["score"] for r in _manifest(folder)["results"]] == [1.0, 0.0]
    assert all(Path(r["run_dir"], "scoring_results.md").is_file() for r in _results("bench"))
    for words in (["bench", "--latest"], [str(folder)]):
        assert _script("summarize", *words).out == (folder / "summary.md").read_text()


def test_the_same_config_runs_with_bakeoff_itself() -> None:
    config = _config("bench", _entry("task_1", "good", 2), _entry("task_2", "bad"))
    assert command("validate", config, folder=Path("out")).code == 0
    ended = command("run", config, folder=Path("out"), timeout_s=120)
    assert ended.code == 0, ended.err
    run = bakeoff.load_run()
    assert [t.attempt.score for t in run.trials()] == [1.0, 0.0, 1.0]
    assert command("eval", "latest", folder=Path("out"), timeout_s=120).code == 0


def test_more_is_said_where_more_is_asked_for() -> None:
    config = _config("bench", _entry("task_1", "good"))
    progress, everything = (_script("run", config, flag).out for flag in ("-v", "-vv"))
    assert "✓" not in progress
    assert "launched" in progress
    assert "1/1 completed" in progress
    assert "quiet mode" not in progress
    assert len(everything.splitlines()) >= len(progress.splitlines())


def test_a_terminal_gets_a_spinner_and_everybody_else_plain_lines() -> None:
    config = _config("bench", _entry("task_1", "good"))
    main, side = pty.openpty()
    words: list[str | Path] = [*ROLLOUTS, "run", config]
    with not_outliving(subprocess.Popen(words, stdout=side, stderr=side)) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:
                break
            shown += piece
        os.close(main)
        assert process.wait(60) == 0
    text = shown.decode()
    assert "⠋ Running tasks... 0/1 completed" in text
    assert "passed: task_1 with shell+good" in text
    assert "\x1b" not in _script("run", config).out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "configs/none.toml"], 1, "configs/none.toml cannot be read"),
        (["run"], 1, "nothing to run: name a config"),
        (["run", "configs/other.toml"], 1, "no rollouts are in it"),
        (["summarize", "nobody"], 1, "no rollout of 'nobody'"),
        (["fly"], 2, "invalid choice: 'fly'"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(
    words: list[str], code: int, said: str
) -> None:
    Path("configs/other.toml").write_text('models = ["scripted"]\n[[tasks]]\nid="a"\nprompt="b"\n')
    ended = _script(*words)
    assert ended.code == code
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert not Path("data/rollouts").exists()
    assert not Path("data/runs").exists()


def _wait_for_work(running: Running) -> None:
    until(lambda: "Starting" in running.out, timeout_s=60)
    time.sleep(0.5)


def test_ctrl_c_finishes_what_runs_and_names_the_command_to_go_on() -> None:
    config = _three_by_two(rollouts=2)
    with started([*ROLLOUTS, "run", config], folder=Path("out").absolute()) as running:
        _wait_for_work(running)
        running.send(signal.SIGINT)
        ended = running.wait(90)
    assert ended.code == 130
    folder = _only_rollout("grid")
    assert f"continue with: python {SCRIPT_FILE} run {config} --resume {folder}\n" in ended.out
    before = _manifest(folder)["results"]
    assert 0 < len(before) < 12
    assert _script("run", "--resume", str(folder)).code == 0
    after = _manifest(folder)["results"]
    assert len(after) == 12
    assert {r["trial"]: r["run_id"] for r in before}.items() <= {
        r["trial"]: r["run_id"] for r in after
    }.items()


def test_an_endpoint_that_stays_down_is_given_up_after_the_time_that_was_set() -> None:
    config = _config("down", _entry("task_1", "down"))
    with Path(config).open("a") as file:
        file.write('[models.down]\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n')
    ended = _script("run", config, "--give-up-after", "0.1s")
    assert ended.code == 6, ended.out
    *_, why, step = ended.out.splitlines()
    assert why.startswith("[rollouts] given up: http://127.0.0.1:9: no answer for ")
    assert step.endswith(f"--resume {_only_rollout('down')} --give-up-after 0.1s")


def test_a_rollout_goes_on_in_the_sandbox_it_was_begun_in_or_says_that_it_does_not() -> None:
    config = _three_by_two(rollouts=2)
    words = ("run", config, "--sandbox", "local", "--parallel", "2", "--data", "kept")
    with started([*ROLLOUTS, *words], folder=Path("out").absolute()) as running:
        until(lambda: "Task" in running.out, timeout_s=60)
        running.send(signal.SIGINT)
        ended = running.wait(90)
    (folder,) = Path("kept/rollouts/grid").iterdir()
    more = "--sandbox local --parallel 2 --data kept"
    assert f"run {config} --resume {folder} {more}\n" in ended.out
    manifest = folder / "run/manifest.json"
    assert json.loads(manifest.read_text())["sandbox"]["name"] == "local"
    # the config says bubblewrap; what it was begun with counts more
    went_on = _script("run", config, "--resume", str(folder))
    assert went_on.code == 0, went_on.out + went_on.err
    assert "sandbox 'local' does not isolate" in went_on.out
    assert "was begun in" not in went_on.out
    moved = _script("run", config, "--resume", str(folder), "--sandbox", "bubblewrap")
    assert "this rollout was begun in local, the rest runs in bubblewrap" in moved.out


def test_a_judge_who_is_not_content_does_not_fail_work_that_passes_its_tests() -> None:
    evaluation = {
        "rubrics": [RUBRIC, {"id": "clear", "criterion": "it reads well", "weight": 0.25}],
        "test_scripts": [SCRIPT],
    }
    for name, more in (("judged", {}), ("strict", {"pass_threshold": 0.97})):
        write_prepared(Path(f"data/tasks/prepared/{name}"), evaluation={**evaluation, **more})
    config = Path(_config("bench", _entry("judged", "good"), _entry("strict", "good")))
    verdict = '{\\"reasoning\\": \\"so so\\", \\"score\\": 8}'
    config.write_text(
        f'{config.read_text()}\n[roles.judge]\nmodel = "scripted/judge"\n'
        f'settings.replies = ["{verdict}"]\n'
    )
    ended = _script("run", str(config))
    assert ended.code == 0, ended.err + ended.out
    by_tests, by_total = _results("bench")
    assert (by_tests["status"], round(by_tests["score"], 3)) == ("passed", 0.956)
    assert (by_total["status"], round(by_total["score"], 3)) == ("failed", 0.956)
    assert "score 0.956 (a pass is all tests passing, whatever a judge says)" in ended.out
    assert "score 0.956 (a pass is a score of 0.97 or more)" in ended.out
    summary = (_only_rollout("bench") / "summary.md").read_text()
    assert "a pass depends on the task: a score of 0.97 or more or all tests passing" in summary
    page = Path(by_tests["run_dir"], "scoring_results.md").read_text()
    assert "(a pass is all tests passing, whatever a judge says)" in page
    found = json.loads(Path(by_tests["run_dir"], "evaluation_results.json").read_text())
    assert found["lm_evaluation"]["weighted_score"] == pytest.approx(7 / 9)
    (judged,) = found["lm_evaluation"]["rubric_scores"]
    assert (judged["rubric_id"], judged["reasoning"]) == ("clear", "so so")


def test_a_config_that_asks_for_less_is_not_resumed_unless_only_that_is_wanted() -> None:
    config = _config("bench", _entry("task_1", "good"), _entry("task_2", "bad"))
    assert _script("run", config).code == 0
    _config("bench", _entry("task_1", "good"))
    refused = _script("run", config, "--resume")
    assert refused.code == 1
    assert "--only" in refused.err
    assert _script("run", config, "--resume", "--only").code == 0
    assert {r["task_id"]: r["status"] for r in _results("bench")} == {
        "task_1": "passed",
        "task_2": "failed",
    }
