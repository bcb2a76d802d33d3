"""An agent that cannot do the tasks it is given is refused before the first request."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import app
from bakeoff.agents.direct import Direct
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.task import ScorerSpec
from bakeoff.registry import BUILT_IN, find
from support.coding_tasks import write_fix_add
from support.loopback import Loopback, chat
from support.plans import task as prompt

NAMED_PROGRAMS = (
    "aider", "claude-code", "codex", "continue", "gemini-cli", "mini-swe-agent", "opencode", "qwen-code",
)  # fmt: skip
NEED_FILES = ("cheat", "code-session", "command", "human", "oracle", "shell", *NAMED_PROGRAMS)
ANSWER_ALONE = ("direct", "nop")


def test_every_built_in_agent_is_in_one_of_the_two_kinds() -> None:
    assert sorted((*NEED_FILES, *ANSWER_ALONE)) == sorted(BUILT_IN["agents"])


@pytest.mark.parametrize("name", NEED_FILES)
def test_an_agent_that_works_on_files_refuses_a_prompt(name: str) -> None:
    built: Any = find("agents", name)
    agent = built(command="true") if name == "command" else built()
    with pytest.raises(
        UsageError, match=f"agent '{name}' works on the files of a task, and task 't'"
    ):
        agent.check(prompt("t"))


def _suite(folder: Path) -> Path:
    path = folder / "suite.json"
    tests = [{"id": f"t{n}", "prompt": "2 + 2?", "expected": "4"} for n in range(3)]
    path.write_text(json.dumps({"tests": tests}))
    return path


def test_the_shell_on_prompts_is_one_error_and_asks_nobody(tmp_path: Path) -> None:
    with Loopback(lambda _: chat("4")) as server:
        with pytest.raises(UsageError) as caught:
            bakeoff.run(
                _suite(tmp_path), models=["m"], agents=["shell"], base_url=server.url,
                output=tmp_path / "runs",
            )  # fmt: skip
        assert server.requests == []
    assert "3 tasks do not fit" in str(caught.value)
    assert "leave the agent out" in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_plan_that_could_not_run_is_refused_as_well(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="works on the files of a task"):
        app.plan(_suite(tmp_path), models=["scripted"], agents=["code-session"])


def test_the_place_where_the_agent_was_written_is_named(tmp_path: Path) -> None:
    _suite(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text('suites = ["suite.json"]\nmodels = ["scripted"]\nagents = ["shell"]\n')
    with pytest.raises(UsageError, match=r"run\.toml:3: 3 tasks do not fit"):
        app.plan(file)


def test_the_bare_model_is_not_asked_for_what_only_changed_files_can_pass(tmp_path: Path) -> None:
    asked: list[object] = []

    def model(request: bakeoff.Request) -> str:
        asked.append(request)
        return ""

    folder = write_fix_add(tmp_path)
    with pytest.raises(UsageError, match="only answers and changes no file, and task 'fix-add'"):
        bakeoff.run(folder, models=[model], agents=["direct"])
    assert asked == []


def test_the_bare_model_may_answer_about_files_where_the_answer_is_scored(tmp_path: Path) -> None:
    (task,) = app.read(write_fix_add(tmp_path), {}).tasks
    judged = app.plan([task], models=["scripted"], agents=["direct"], scorers=["includes"])
    assert len(judged.plan) == 1
    rubrics = ScorerSpec(name="rubrics", settings={"rubrics": [{"id": "good"}]})
    Direct().check(next(iter(app.plan(
        [task], models=["scripted"], agents=["nop"], scorers=[rubrics]
    ).plan.tasks)))  # fmt: skip


def test_tasks_of_both_kinds_without_an_agent_are_not_given_to_one_that_cannot_do_them(
    tmp_path: Path,
) -> None:
    write_fix_add(tmp_path)
    _suite(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text('suites = ["suite.json", "fix-add"]\nmodels = ["scripted"]\n')
    with pytest.raises(UsageError, match="'fix-add' has files to work on, 't0' has none"):
        app.plan(file)
    assert len(app.plan(file, tests=["t*"]).plan) == 3
    assert len(app.plan(file, tests=["fix-add"]).plan) == 1


def test_an_agent_of_both_kinds_names_the_way_out(tmp_path: Path) -> None:
    write_fix_add(tmp_path)
    _suite(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text('suites = ["suite.json", "fix-add"]\nmodels = ["scripted"]\n')
    with pytest.raises(UsageError, match="run apart: choose some with --test or --category"):
        app.plan(file, agents=["shell"])


class _Picky:
    """Somebody's own agent that says which tasks it can do."""

    def check(self, task: bakeoff.Task) -> None:
        if task.id != "t0":
            raise UsageError(f"only t0, not {task.id}")

    async def solve(self, task: bakeoff.Task, context: object) -> Outcome:
        return Outcome(answer="4")


def test_an_agent_of_ones_own_may_say_which_tasks_it_can_do(tmp_path: Path) -> None:
    suite = _suite(tmp_path)
    given: dict[str, Any] = {"models": ["scripted"], "output": tmp_path / "runs"}
    with pytest.raises(UsageError, match="only t0, not t1"):
        bakeoff.run(suite, agents=[_Picky()], **given)
    assert len(list(bakeoff.run(suite, agents=[_Picky()], tests=["t0"], **given).trials())) == 1


def test_an_agent_named_by_module_is_asked_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from bakeoff.core.errors import UsageError\n"
        "class Never:\n"
        "    def check(self, task):\n"
        "        raise UsageError('never ' + task.id)\n"
        "    async def solve(self, task, kit): ...\n"
    )
    suite = _suite(tmp_path)
    with pytest.raises(UsageError, match="never t0"):
        bakeoff.run(suite, models=["scripted"], agents=["mine:Never"], output=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_model_or_an_agent_that_is_named_twice_is_said_to_run_once(tmp_path: Path) -> None:
    twice = app.plan(_suite(tmp_path), models=["scripted/echo", "scripted/echo"])
    assert len(twice.plan) == 3
    assert twice.notices == (
        "model 'scripted/echo' is named 2 times and runs once; to repeat every task: --rollouts 2",
    )
    agents = app.plan(_suite(tmp_path), models=["scripted"], agents=[AgentSpec(name="nop")] * 3)
    assert "agent 'nop' is named 3 times and runs once" in agents.notices[0]
