"""Cases with data: code that runs in a box, predictions that are evaluated in a clean one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.outcome import Completion, Outcome, Request, Usage
from bakeoff.core.ports import Model
from bakeoff.core.record import Attempt, Status
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Task, ToolCall
from bakeoff.formats.agent_bench import read_bench
from support.agent_benches import write_agent, write_base, write_bench
from support.parts import require

ROLES = """\
import json


def instructor(request):
    said = sum(m.role == "assistant" for m in request.messages)
    return json.dumps({"thought": "", "user_response": f"step {said + 1}", "end": said >= 1})


def supervisor(request):
    return json.dumps({"thought": "", "contradictory": False, "follow_up_instruction": None})
"""
CANARY = "CANARY"


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def bench_of(folder: Path, *, run_code: bool = True) -> RunSpec:
    """A benchmark of one data case with scripted roles."""
    write_bench(folder, ["case"], data=True)
    (folder / "played_roles.py").write_text(ROLES)
    write_base(folder, "unused")
    base = folder / "base_config.toml"
    text = base.read_text().split("[benchmark]")[1]
    base.write_text(
        '[instructor]\nmodel = "played_roles:instructor"\n'
        f'[supervisor]\nmodel = "played_roles:supervisor"\n[benchmark]{text}'
    )
    write_agent(folder, "one", "http://127.0.0.1:9/v1", run_code=run_code)
    return read_bench(base, folder / "agent_configs").run_spec


def run_with(brief: RunSpec, folder: Path, **options: Any) -> bakeoff.Run:
    options = {"sandbox": "bubblewrap", "output": folder / "runs", **options}
    return bakeoff.run(brief, **options)


def only(run: bakeoff.Run) -> Attempt:
    (record,) = run.trials()
    return record.attempt


def codes(*cells: str) -> Callable[[Request], Completion]:
    """A model that runs *cells*, one in each turn, and then says what came of it."""

    def played(request: Request) -> Completion:
        usage = Usage(input_tokens=10, output_tokens=5)
        if request.messages[-1].role == "tool":
            return Completion(text=f"I saw: {request.messages[-1].content}", usage=usage)
        done = sum(m.role == "tool" for m in request.messages)
        if done >= len(cells):
            return Completion(text="Nothing more.", usage=usage)
        call = ToolCall(id=f"c{done}", name="run_code", arguments=json.dumps({"code": cells[done]}))
        return Completion(text="", tool_calls=(call,), usage=usage)

    return played


def seen(attempt: Attempt) -> list[str]:
    assert attempt.outcome is not None, attempt.fault
    return [m.content for m in attempt.outcome.transcript if m.role == "tool"]


READ = "import csv\nrows = list(csv.DictReader(open('datasets/numbers.csv')))\nlen(rows)"


def writes(*values: float) -> str:
    lines = "".join(f"{n},{v}\\n" for n, v in enumerate(values, start=1))
    return f"open('submission.csv', 'w').write('id,value\\n{lines}')\nrows[0]['x']"


def test_code_runs_in_a_session_and_the_prediction_becomes_a_skill(tmp_path: Path) -> None:
    run = run_with(bench_of(tmp_path), tmp_path, models=[codes(READ, writes(12, 21))])
    attempt = only(run)
    assert attempt.status is Status.COMPLETED, attempt.fault
    assert seen(attempt) == ["2", "'10'"]  # `rows` lived on
    (score,) = attempt.scores
    assert score.details["score"] == 0.5
    assert score.details["skill"] == pytest.approx(0.75)  # (0.5 - 2) / (0 - 2)
    assert score.value == pytest.approx(0.75)
    assert attempt.passed is True


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("1", "there is no submission.csv"),
        (writes(1), "another number of rows"),
        ("open('submission.csv', 'w').write('id,x\\n1,2\\n3,4\\n')", "cannot be evaluated: KeyError"),
        ("import os; os.mkdir('submission.csv')\nopen('submission.csv/x', 'w').write('1')", "it is no file"),
        ("import os; os.symlink('/bakeoff/ground_truth/truth.csv', 'submission.csv')", "it is a link"),
    ],
)  # fmt: skip
def test_a_prediction_that_is_missing_or_wrong_scores_0_and_says_why(
    tmp_path: Path, cell: str, why: str
) -> None:
    attempt = only(run_with(bench_of(tmp_path), tmp_path, models=[codes(READ, cell)]))
    assert (attempt.status, attempt.score, attempt.passed) == (Status.COMPLETED, 0.0, False)
    assert why in (attempt.scores[0].explanation or "")
    assert attempt.scores[0].details["skill"] is None


def test_worse_than_the_baseline_is_a_negative_skill_and_a_score_of_0(tmp_path: Path) -> None:
    attempt = only(run_with(bench_of(tmp_path), tmp_path, models=[codes(READ, writes(15, 25))]))
    assert attempt.scores[0].details["skill"] == pytest.approx(-1.0)
    assert (attempt.score, attempt.passed) == (0.0, False)


@pytest.mark.parametrize(
    "metrics", ["def evaluate(a, b):\n    raise OSError('no disk')\n", "import nothing_like_it\n", "x = 1\n",
                "def evaluate(a, b):\n    return float('nan')\n"]
)  # fmt: skip
def test_an_evaluation_that_is_broken_is_a_fault_and_never_a_zero(
    tmp_path: Path, metrics: str
) -> None:
    brief = bench_of(tmp_path)
    path = tmp_path / "bench/storage/case/evaluation/evaluation_metrics.py"
    path.write_text(metrics)
    brief = read_bench(tmp_path / "base_config.toml", tmp_path / "agent_configs").run_spec
    attempt = only(run_with(brief, tmp_path, models=[codes(READ, writes(11, 21))]))
    assert attempt.status is Status.FAULTED
    assert attempt.score is None
    assert attempt.fault is not None
    assert attempt.fault.boundary == "scorer"


def test_datasets_can_be_read_and_not_written(tmp_path: Path) -> None:
    cell = (
        "import os\ntold = []\n"
        "for act in (lambda: open('datasets/numbers.csv', 'a'), lambda: open('datasets/new', 'w'),\n"
        "            lambda: os.chmod('datasets/numbers.csv', 0o777),\n"
        "            lambda: os.rename('datasets', 'other')):\n"
        "    try:\n        act()\n    except OSError as error:\n        told.append(error.errno)\n"
        "print(len(told), os.environ['DATASETS'])"
    )
    attempt = only(run_with(bench_of(tmp_path), tmp_path, models=[codes(cell)]))
    assert seen(attempt) == ["4 /app/datasets"]
    kept = (tmp_path / "bench/storage/case/datasets/numbers.csv").read_text()
    assert kept == "id,x\n1,10\n2,20\n"


def test_datasets_that_changed_since_the_plan_are_refused(tmp_path: Path) -> None:
    brief = bench_of(tmp_path)
    (tmp_path / "bench/storage/case/datasets/numbers.csv").write_text("other")
    with pytest.raises(bakeoff.UsageError, match="is not what it was when the plan was made"):
        run_with(brief, tmp_path, models=[codes()])


def plant_canaries(folder: Path) -> None:
    """Put a word of its own into everything that the agent must not see."""
    case = folder / "bench" / "storage" / "case"
    told = case / "instructions"
    (told / "instructions.md").write_text(
        f"**Objective**\n{CANARY}-objective\n\n**Your Knowledge**\n{CANARY}-knowledge\n"
    )
    (told / "reference_insights.md").write_text(f"{CANARY}-reference")
    (told / "gatekeeper_reference.md").write_text(f"{CANARY}-supervision")
    truth = case / "ground_truth" / "truth.csv"
    truth.write_text(truth.read_text() + f"3,31,{CANARY}-truth\n")
    metrics = case / "evaluation" / "evaluation_metrics.py"
    metrics.write_text(f"# {CANARY}-metrics\n" + metrics.read_text())
    base = folder / "base_config.toml"
    text = base.read_text().replace(
        "[supervisor]", f'system_prompt = "{CANARY}-instructor-prompt"\n[supervisor]'
    )
    base.write_text(
        text.replace("[benchmark]", f'system_prompt = "{CANARY}-supervisor-prompt"\n[benchmark]')
    )


def test_an_agent_in_python_is_given_nothing_of_the_roles_either(tmp_path: Path) -> None:
    bench_of(tmp_path, run_code=False)
    plant_canaries(tmp_path)
    brief = read_bench(tmp_path / "base_config.toml", tmp_path / "agent_configs").run_spec
    given: list[str] = []

    def agent(task: Task, model: Model) -> Outcome:
        given.extend((repr(task), json.dumps(task.identity()), repr(vars(model))))
        return Outcome(answer="done")

    attempt = only(run_with(brief, tmp_path, agents=[agent]))
    assert attempt.status is Status.COMPLETED, attempt.fault
    assert len(given) == 6
    assert CANARY not in "".join(given)


def told_by(attempt: Attempt) -> list[str]:
    assert attempt.outcome is not None, attempt.fault
    return [m.content for m in attempt.outcome.transcript if m.role == "user"]


def test_the_shell_agent_is_told_each_message_and_keeps_its_files(tmp_path: Path) -> None:
    def model(request: Request) -> Completion:
        if request.messages[-1].role == "tool":
            return Completion(text="done")
        step = request.messages[-1].content
        call = json.dumps({"command": f"echo '{step}' >> log.txt; cat log.txt; ls datasets"})
        return Completion(text="", tool_calls=(ToolCall(id="c", name="run", arguments=call),))

    attempt = only(run_with(bench_of(tmp_path), tmp_path, models=[model], agents=["shell"]))
    assert attempt.status is Status.COMPLETED, attempt.fault
    assert told_by(attempt) == ["step 1", "step 2"]
    assert "step 1\nstep 2\nnumbers.csv" in seen(attempt)[-1]
    assert attempt.outcome is not None
    assert attempt.outcome.change is not None
    assert "+step 1\n+step 2\n" in attempt.outcome.change.patch


def test_a_program_is_told_each_message_through_the_gateway(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    program = tmp_path / "tool" / "asks.py"
    program.write_text(
        "import json, os, sys, urllib.request\n"
        "told = sys.stdin.read()\n"
        "body = {'model': 'm', 'messages': [{'role': 'user', 'content': told}]}\n"
        "request = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions',\n"
        "    json.dumps(body).encode(), {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY'],\n"
        "    'Content-Type': 'application/json'})\n"
        "print(json.load(urllib.request.urlopen(request))['choices'][0]['message']['content'])\n"
        "open('log.txt', 'a').write(told + '\\n')\n"
    )
    agent = AgentSpec(name="command", settings={
        "command": ["python3", str(program)], "mounted": [str(program.parent)],
    })  # fmt: skip

    def model(request: Request) -> Completion:
        return Completion(text=f"heard: {request.messages[-1].content}")

    attempt = only(run_with(bench_of(tmp_path), tmp_path, models=[model], agents=[agent]))
    assert attempt.status is Status.COMPLETED, attempt.fault
    assert attempt.outcome is not None
    said = [(m.role, m.content) for m in attempt.outcome.transcript]
    assert [role for role, _ in said] == ["user", "assistant"] * 2
    assert said[1][1].startswith("heard: ")
    assert said[2] == ("user", "step 2")
    assert said[3] == ("assistant", "heard: step 2")
    assert attempt.spent.requests == 2
    assert attempt.roles["instructor"].requests == 2


def test_stored_conversations_are_scored_again_without_asking_anybody(tmp_path: Path) -> None:
    asked = []
    plays = codes(READ, writes(12, 21))

    def model(request: Request) -> Completion:
        asked.append(request)
        return plays(request)

    run = run_with(bench_of(tmp_path), tmp_path, models=[model])
    before = len(asked)
    again = bakeoff.rescore(run)
    assert only(again).score == pytest.approx(0.75)
    assert len(asked) == before
