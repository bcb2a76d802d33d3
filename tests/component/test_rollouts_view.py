"""The folders and files of a rollout: what the ledger says, as the documents promise it."""

import asyncio
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import app, get_task_score, load_benchmark
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.events import Event, TrialEnded, TrialStarted
from bakeoff.core.outcome import Request
from bakeoff.core.record import Score
from bakeoff.core.run_spec import Pairing, RunSpec
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.frontends.rollouts.command import view_of
from bakeoff.frontends.rollouts.folders import Rollout, find_rollout, is_rollout, new_rollout
from bakeoff.frontends.rollouts.view import RolloutView

MOMENT = datetime(2025, 8, 24, 12, 34, 56, tzinfo=UTC)
STAMP = "20250824__12-34-56"

# as they stand in the documents, only the name of the folder is another
CUSTOM_ANALYSIS = """
import json
from pathlib import Path

# Load benchmark results
rollout_dir = Path("data/rollouts/your_benchmark/20250824__12-34-56")
manifest = json.loads((rollout_dir / "manifest.json").read_text())

# Analyze results
for result in manifest["results"]:
    run_dir = Path(result["run_dir"])
    if (run_dir / "evaluation_results.json").exists():
        eval_data = json.loads((run_dir / "evaluation_results.json").read_text())
        print(f"Task: {result['task_dir']}")
        print(f"Score: {eval_data.get('total_score', 'N/A')}")
        print("---")
"""
COMPARISON = """
benchmarks = {
    "gpt4_v1": load_benchmark("data/rollouts/model_v1/20250824"),
    "gpt4_v2": load_benchmark("data/rollouts/model_v2/20250824"),
    "claude_v1": load_benchmark("data/rollouts/claude_v1/20250824")
}

# Compare performance
for task_name in benchmark_tasks:
    scores = {}
    for model, results in benchmarks.items():
        scores[model] = get_task_score(results, task_name)

    print(f"Task: {task_name}")
    for model, score in scores.items():
        print(f"  {model}: {score}")
"""


def rubric_scorer(task: Task, answer: str) -> Score:
    """Scores as the scorer of rubrics does: half for the test, half by a judge."""
    right = answer == "right"
    tested: dict[str, Any] = {
        "criterion": "it | <b>works</b>",
        "weight": 3.0,
        "score": float(right),
    }
    tested |= {"max_score": 1.0, "weighted_score": 3.0 * right, "test_count": 2}
    tested |= {"tests_passed": 2 * right}
    judged: dict[str, Any] = {
        "criterion": "reads well",
        "weight": 1.0,
        "score": 0.5,
        "max_score": 1.0,
    }
    judged |= {"weighted_score": 0.5, "test_count": 0, "tests_passed": 0}
    silent = {**judged, "score": None, "weighted_score": None, "weight": 9.0}
    return Score(
        scorer="rubrics",
        value=1.0 if right else 0.125,
        details={
            "rubrics": {"unit": tested, "style": judged, "nobody": silent},
            "test_results": {
                "t.py": {"success": right, "output": "```\n# <script>\x1b[31m", "duration_sec": 0.1}
            },
            "custom_metrics": {"complexity": 3 + right, "name": "x"},
            "custom_metrics_unverified": ["name"],
            "output": "ran 2 tests",
        },
    )


def _model(request: Request) -> str:
    asked = request.messages[-1].content
    if asked == "broken":
        raise ProviderError("the endpoint is gone")
    if asked == "duel":
        return "right" if request.parameters.get("name") == "good" else "wrong"
    return "right" if asked == "easy" or request.rollout == 0 else "wrong"


def _task(name: str, ask: str) -> Task:
    return Task(
        id=name,
        messages=(Message(role="user", content=ask),),
        scorers=(ScorerSpec(name=f"{__name__}:rubric_scorer"),),
        metadata={"task_dir": f"data/tasks/prepared/{name}", "repo": {"git_url": "x"}},
    )


EASY, HARD, BROKEN = _task("easy", "easy"), _task("hard", "hard"), _task("broken", "broken")


def _brief(*tasks: Task, rollouts: int = 2, models: tuple[str, ...] = ("m",)) -> RunSpec:
    pairings = [
        Pairing(
            task=task,
            model=ModelSpec(provider="python", name=f"{__name__}:_model", label=model,
                            parameters={"name": model}),
            agent=AgentSpec(),
            rollouts=rollouts,
        )
        for task in tasks
        for model in models
    ]  # fmt: skip
    return RunSpec(name="your_benchmark", tasks=tasks, pairings=tuple(pairings), parallel=2)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(
        str(Path(__file__).parents[2])
    )  # its scorer is imported by a worker


def _prepare(brief: RunSpec) -> dict[str, Any]:
    return {"models": [_model]} if len({p.model.label for p in brief.pairings}) == 1 else {}


def _start(brief: RunSpec, *, name: str = "your_benchmark", **options: Any) -> RolloutView:
    rollout = new_rollout(Path("data"), name, MOMENT)
    view = RolloutView(rollout, config="configs/your_benchmark.toml", name=name, parallel=2)
    _go(brief, view, folder=rollout.ledger, **options)
    return view


def _go(brief: RunSpec | None, view: RolloutView, **options: Any) -> bakeoff.Run:
    return app.run(brief, listener=options.pop("listener", view), **options)


def _manifest(view: RolloutView) -> dict[str, Any]:
    return json.loads((view.rollout.folder / "manifest.json").read_text())


def test_the_tree_is_the_one_of_the_documents() -> None:
    view = _start(_brief(EASY, HARD))
    manifest = _manifest(view)
    assert manifest["config"] == "configs/your_benchmark.toml"
    assert (manifest["name"], manifest["created_at"]) == ("your_benchmark", STAMP)
    first = manifest["results"][0]
    assert first["task_dir"] == "data/tasks/prepared/easy"
    assert (first["run_id"], first["run_dir"]) == (f"{STAMP}-0", f"data/runs/{STAMP}-0")
    assert (first["status"], first["launch_rc"], first["rollout"]) == ("passed", 0, 0)
    assert (first["model"], first["agent"], first["score"]) == ("m", "direct", 1.0)
    assert [r["status"] for r in manifest["results"]] == ["passed", "passed", "passed", "failed"]
    assert [r["run_id"][-1] for r in manifest["results"]] == ["0", "1", "2", "3"]
    folder = Path(f"data/rollouts/your_benchmark/{STAMP}")
    assert (folder / "runs.txt").read_text().split() == [r["run_dir"] for r in manifest["results"]]
    assert sorted(p.stem for p in (folder / "task_results").iterdir()) == [
        r["run_id"] for r in manifest["results"]
    ]
    index = json.loads(Path(f"data/rollouts/temp/rollout_your_benchmark__{STAMP}.json").read_text())
    assert index["rollout_dir"] == str(folder)
    assert index["runs"] == [r["run_dir"] for r in manifest["results"]]
    assert index["tasks"] == ["data/tasks/prepared/easy", "data/tasks/prepared/hard"]
    graded = json.loads((folder / "eval_manifest.json").read_text())["results"]
    assert [g["total_score"] for g in graded] == [1.0, 1.0, 1.0, 0.125]
    files = {str(p.relative_to(first["run_dir"])) for p in Path(first["run_dir"]).rglob("*.*")}
    assert {
        "metadata.json",
        "results.json",
        "evaluation_results.json",
        "scoring_results.md",
        "logs/eval.log",
        "artifacts/notes.md",
        "artifacts/repo_info.json",
    } <= files


def test_the_evaluation_has_the_keys_that_are_promised() -> None:
    view = _start(_brief(HARD))
    run_dir = Path(_manifest(view)["results"][1]["run_dir"])
    found = json.loads((run_dir / "evaluation_results.json").read_text())
    assert found["total_score"] == found["evaluation"]["total_score"] == 0.125
    assert found["evaluation"]["max_score"] == 1.0
    assert found["evaluation"]["rubrics"]["unit"]["tests_passed"] == 0
    assert found["evaluation"]["rubrics"]["nobody"]["score"] is None
    assert found["test_results"]["t.py"]["success"] is False
    assert found["custom_metrics"] == {"complexity": 3, "name": "x"}
    assert found["custom_metrics_unverified"] == ["name"]
    shown = (run_dir / "scoring_results.md").read_text()
    assert "| name (unverified) | x |" in " ".join(shown.split())
    assert "complexity (unverified)" not in shown
    assert found["standard_metrics"]["unit_score"] == 0.0
    assert found["lm_evaluation"]["score"] == 0.5
    assert {"tokens_total", "tool_calls_total", "time_taken_seconds", "money_spent_usd"} <= set(
        found["agent_metrics"]
    )
    assert "diff_lines" in found


def test_the_custom_analysis_of_the_documents_works_as_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _start(_brief(EASY, HARD, rollouts=1))
    exec(CUSTOM_ANALYSIS, {})
    assert capsys.readouterr().out == (
        "Task: data/tasks/prepared/easy\nScore: 1.0\n---\n"
        "Task: data/tasks/prepared/hard\nScore: 1.0\n---\n"
    )


def test_the_comparison_of_the_documents_works_as_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("model_v1", "model_v2", "claude_v1"):
        _start(_brief(EASY, HARD), name=name)
    known = {"load_benchmark": load_benchmark, "get_task_score": get_task_score}
    exec(COMPARISON, {**known, "benchmark_tasks": ["easy", "data/tasks/prepared/hard"]})
    shown = "  gpt4_v1: {0}\n  gpt4_v2: {0}\n  claude_v1: {0}\n"
    assert capsys.readouterr().out == (
        f"Task: easy\n{shown.format(1.0)}Task: data/tasks/prepared/hard\n{shown.format(0.5625)}"
    )


def test_models_are_never_averaged_together() -> None:
    view = _start(_brief(EASY, models=("one", "two")))
    results = load_benchmark(view.rollout.folder)
    assert results.tasks == ("easy",)
    assert results.candidates == ("one", "two")
    assert get_task_score(results, "easy", model="two") == 1.0
    with pytest.raises(UsageError, match=r"say whose score of 'easy' is meant, .*: one, two"):
        get_task_score(results, "easy")
    with pytest.raises(UsageError, match="no task 'eazy'; did you mean 'easy'"):
        get_task_score(results, "eazy")
    with pytest.raises(UsageError, match="is not the folder of a rollout"):
        load_benchmark("data/rollouts/nothing")


def test_a_fault_is_no_score_and_says_why() -> None:
    view = _start(_brief(EASY, BROKEN, rollouts=1))
    fine, broken = _manifest(view)["results"]
    assert (fine["status"], broken["status"], broken["launch_rc"]) == ("passed", "faulted", 1)
    assert broken["score"] is None
    assert broken["fault"] == {"boundary": "provider", "message": "the endpoint is gone"}
    run_dir = Path(broken["run_dir"])
    assert not (run_dir / "evaluation_results.json").exists()
    assert "the endpoint is gone" in (run_dir / "logs" / "eval.log").read_text()
    assert "the endpoint is gone" in (run_dir / "scoring_results.md").read_text()
    assert get_task_score(load_benchmark(view.rollout.folder), "broken") is None


def test_a_task_with_trouble_faults_without_asking_anybody() -> None:
    asked = []

    def model(request: Request) -> str:
        asked.append(request)
        return "right"

    gone = replace(HARD, trouble="data/x/tb_meta.json is not there", scorers=())
    view = _start(_brief(EASY, gone, rollouts=1), models=[model])
    fine, broken = _manifest(view)["results"]
    assert (fine["status"], broken["status"]) == ("passed", "faulted")
    assert broken["fault"]["message"] == "data/x/tb_meta.json is not there"
    assert len(asked) == 1


def test_the_manifest_is_current_and_whole_while_it_runs() -> None:
    seen: list[list[str]] = []
    rollout = new_rollout(Path("data"), "b", MOMENT)
    view = RolloutView(rollout, config=None, name="b")

    def statuses() -> list[str]:
        return [r["status"] for r in _manifest(view)["results"]]

    async def model(request: Request) -> str:
        async with asyncio.timeout(30):  # it is written soon, not at once
            while len(statuses()) <= len(seen):
                await asyncio.sleep(0.05)
        seen.append(statuses())
        return "right"

    brief = replace(_brief(EASY, rollouts=3), parallel=1)
    _go(brief, view, folder=rollout.ledger, models=[model])
    assert seen == [["launched"], ["passed", "launched"], ["passed", "passed", "launched"]]
    assert [r["status"] for r in _manifest(view)["results"]] == ["passed"] * 3


def test_everything_is_made_again_out_of_the_ledger() -> None:
    view = _start(_brief(EASY, HARD))
    before = _manifest(view)
    shutil.rmtree("data/runs")
    for name in ("runs.txt", "summary.md", "eval_manifest.json"):
        (view.rollout.folder / name).unlink()
    (Path("data/runs") / f"{STAMP}-3").mkdir(parents=True)
    (Path("data/runs") / f"{STAMP}-3" / "artifacts").mkdir()
    view_of(view.rollout).refresh()
    assert _manifest(view) == before
    assert all(Path(r["run_dir"], "scoring_results.md").is_file() for r in before["results"])
    assert (view.rollout.folder / "summary.md").is_file()


def test_a_resumed_rollout_runs_what_is_missing_and_keeps_its_run_ids() -> None:
    view = _start(_brief(EASY, BROKEN, rollouts=1))
    again = view_of(view.rollout)
    more = _brief(HARD, EASY, BROKEN, rollouts=1)
    assert (again.name, again.config, again.parallel) == (view.name, view.config, 2)
    asked: list[str] = []

    def listen(event: Event) -> None:
        again(event)
        if isinstance(event, TrialStarted):
            asked.append(event.trial.task.id)

    _go(more, again, resume=str(view.rollout.folder), listener=listen)
    assert sorted(asked) == ["broken", "hard"]
    by_task = {r["task_id"]: r["run_id"] for r in _manifest(again)["results"]}
    assert len(set(by_task.values())) == 3
    summary = (view.rollout.folder / "summary.md").read_text()
    assert "3 runs planned: 2 scored" in summary


def test_ids_stay_with_their_trials_whatever_is_added_before_them() -> None:
    brief = _brief(EASY, rollouts=2)
    view = _start(brief)
    before = {r["trial"]: r["run_id"] for r in _manifest(view)["results"]}
    again = view_of(view.rollout)
    _go(_brief(HARD, EASY, rollouts=2), again, resume=str(view.rollout.folder))
    after = {r["trial"]: r["run_id"] for r in _manifest(again)["results"]}
    assert before.items() <= after.items()
    assert sorted(after.values()) == [f"{STAMP}-{n}" for n in range(4)]


def test_grading_again_makes_the_files_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    view = _start(_brief(HARD))
    bakeoff.rescore(str(view.rollout.folder))
    view_of(view.rollout).refresh()
    assert [r["score"] for r in _manifest(view)["results"]] == [1.0, 0.125]


def test_rollouts_of_one_second_never_share_a_folder_whatever_their_names() -> None:
    names = ["a", "b", "a", "c", "a/../b", "a"]
    with ThreadPoolExecutor(max_workers=6) as pool:
        made = list(pool.map(lambda name: new_rollout(Path("data"), name, MOMENT), names))
    assert len({r.folder for r in made}) == len({r.stamp for r in made}) == 6
    assert all(r.folder.parent.parent == Path("data/rollouts") for r in made)
    assert all(r.run_dir(f"{r.stamp}-0").is_dir() for r in made)


def test_a_rollout_is_found_by_name_by_stamp_and_by_folder() -> None:
    first, second = _start(_brief(EASY)).rollout, _start(_brief(EASY)).rollout
    new_rollout(Path("data"), "your_benchmark", MOMENT)  # has not begun
    data = Path("data")
    assert find_rollout(data, "your_benchmark") == second
    assert find_rollout(data, "your_benchmark", STAMP) == first
    assert find_rollout(data, str(first.folder)) == first
    assert find_rollout(data, "data/rollouts/your_benchmark") == second
    assert second.stamp == f"{STAMP}b"
    assert is_rollout(first.folder)
    with pytest.raises(UsageError, match=r"no rollout of 'your_bench' .*'your_benchmark'"):
        find_rollout(data, "your_bench")
    with pytest.raises(UsageError, match="there is no rollout '2024' in "):
        find_rollout(data, "your_benchmark", "2024")
    with pytest.raises(UsageError, match="'2025' is short for several"):
        find_rollout(data, "your_benchmark", "2025")


def test_the_folder_of_a_rollout_is_taken_wherever_a_run_is() -> None:
    view = _start(_brief(EASY))
    assert bakeoff.load_run(view.rollout.folder).summary().buckets.scored == 2
    assert bakeoff.load_run(view.rollout.ledger).manifest.planned == 2


def test_what_programs_and_models_write_is_shown_and_never_obeyed() -> None:
    view = _start(_brief(HARD))
    page = Path(_manifest(view)["results"][1]["run_dir"], "scoring_results.md").read_text()
    assert "\x1b" not in page
    assert "it \\| \\<b\\>works\\</b\\>" in page
    assert "````\n```\n# <script>" in page
    assert "No model judged nobody" in page
    assert "12.5%" in page


def test_the_summary_tells_models_tasks_and_runs_apart() -> None:
    view = _start(_brief(EASY, HARD, models=("one", "two")))
    text = (view.rollout.folder / "summary.md").read_text()
    assert (
        "8 runs planned: 8 scored, 0 unchecked, 0 limited, 0 model errors, 0 infrastructure faults"
        in text
    )
    assert "| task | model | run | unit | lm | tokens | tools |" in text
    assert f"| hard | one | {STAMP}-6 | 0.000 | 0.500 |" in text
    assert "| hard | two | 2 of 2 | 0.562 | 1.000 |" in text
    assert "@1: 0.500, @2: 1.000" in text
    assert "| one | complexity | 3.75 | 4 |" in text
    assert "| one | two | " in text
    assert "Verdict: no decision between one and two" in text


def test_models_on_one_task_are_compared_over_its_rollouts_and_for_this_task_only() -> None:
    view = _start(_brief(_task("duel", "duel"), rollouts=4, models=("good", "bad")))
    text = (view.rollout.folder / "summary.md").read_text()
    assert "not compared" not in text
    assert "| good | bad | +0.875 | – | 0.029 | – | A is better on this task |" in text
    assert "over its rollouts, and for this task only" in text
    last = text.rstrip().splitlines()[-1]
    assert last == "Verdict: good is better than bad on this task, by 0.875"


def test_one_model_has_nobody_to_be_compared_with() -> None:
    text = (_start(_brief(EASY, HARD)).rollout.folder / "summary.md").read_text()
    assert "## Models" in text
    assert "## Differences" not in text
    assert "Verdict" not in text


def test_a_rollout_that_somebody_writes_is_only_read() -> None:
    seen: list[str] = []
    rollout = new_rollout(Path("data"), "b", MOMENT)
    view = RolloutView(rollout, config=None, name="b")

    def listen(event: Event) -> None:
        view(event)
        if isinstance(event, TrialEnded):
            other = view_of(Rollout(folder=rollout.folder))
            other.refresh()
            seen.append(str(len(other.findings().runs)))

    _go(replace(_brief(EASY), parallel=1), view, folder=rollout.ledger, listener=listen)
    assert seen == ["1", "2"]
