"""Bakeoff as a library: what a person writes in a script or a notebook."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import (
    AgentSpec,
    Completion,
    Message,
    ModelSpec,
    Outcome,
    Request,
    Score,
    ScorerSpec,
    Stop,
    Suite,
    Task,
    Usage,
    UsageError,
)
from bakeoff.app import plan, rescore
from bakeoff.core.events import Event, RunEnded, RunStarted, TrialEnded, TrialStarted
from support.loopback import Loopback


def _task(number: int, **rest: Any) -> Task:
    return Task(
        id=f"t{number}",
        messages=(Message(role="user", content=f"What is {number} + 1?"),),
        target=number + 1,
        scorers=(ScorerSpec(name="numeric"),),
        **rest,
    )


TASKS = [_task(n) for n in range(4)]


def adds(request: Request) -> str:
    number = int(request.messages[-1].content.split()[2])
    return f"It is {number + 1}."


def _mean(run: bakeoff.Run) -> float | None:
    return bakeoff.summarize(run).candidates[0].total.score.mean


# --- what can be given


def test_a_list_of_tasks_can_be_run(tmp_path: Path) -> None:
    run = bakeoff.run(TASKS, models=[adds], output=tmp_path)
    assert _mean(run) == 1.0
    trials = list(run.trials())
    assert [t.task_id for t in trials] == ["t0", "t1", "t2", "t3"]
    assert [t.attempt.score for t in trials] == [1.0] * 4
    assert all(t.attempt.outcome and t.attempt.outcome.answer.startswith("It is") for t in trials)
    assert run.folder.parent == tmp_path
    assert run.id in repr(run)


def test_a_suite_object_gives_its_name_to_the_run(tmp_path: Path) -> None:
    suite = Suite(name="My Suite", tasks=tuple(TASKS), version="1")
    run = bakeoff.run(suite, models=[adds], output=tmp_path)
    assert run.id.endswith("-my-suite")
    assert run.manifest.name == "My Suite"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_can_be_given_as_text_or_path(
    tmp_path: Path, kind: Callable[[Path], str | Path]
) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"tests": [{"id": "a", "prompt": "hi", "expected": "hi"}]}))
    run = bakeoff.run(kind(path), models=["scripted"], output=kind(tmp_path / "out"))
    assert _mean(run) == 1.0


def test_a_run_is_found_again_by_id_path_and_latest(tmp_path: Path) -> None:
    run = bakeoff.run(TASKS, models=[adds], output=tmp_path)
    for reference in (run.id, str(run.folder), run.folder, "latest", run.id[:15]):
        again = bakeoff.load_run(reference, output=tmp_path)
        assert again.id == run.id
        assert again.summary() == run.summary()
        assert bakeoff.summarize(reference, output=tmp_path) == run.summary()
    with pytest.raises(UsageError, match="no run 'nothing'"):
        bakeoff.load_run("nothing", output=tmp_path)


def test_a_finished_run_is_plain_files_that_can_be_read_where_nothing_can_be_written(
    tmp_path: Path,
) -> None:
    run = bakeoff.run(TASKS, models=[adds], output=tmp_path)
    bakeoff.load_run(run.folder).summary()
    assert not [p.name for p in run.folder.iterdir() if p.name.endswith(("-wal", "-shm"))]


def test_options_select_repeat_and_resume(tmp_path: Path) -> None:
    asked: list[str] = []

    def counting(request: Request) -> str:
        asked.append(request.messages[-1].content)
        return adds(request)

    first = bakeoff.run(TASKS, models=[counting], output=tmp_path, limit=2, rollouts=2, parallel=1)
    assert len(asked) == 4
    again = bakeoff.run(TASKS, models=[counting], output=tmp_path, rollouts=2, resume=first.id)
    assert again.id == first.id
    assert len(asked) == 8
    assert len(list(again.trials())) == 8
    assert len(again.attempts("t0")) == 2
    bakeoff.run(TASKS, models=[counting], output=tmp_path, tests=["t[03]"])
    assert len(asked) == 10


def test_what_was_given_with_whole_numbers_resumes_as_what_it_was(tmp_path: Path) -> None:
    asked = 0

    def model(_: Request) -> str:
        nonlocal asked
        asked += 1
        return "2"

    given = [
        Task(
            id="a",
            messages=(Message(role="user", content="x"),),
            target="2",
            scorers=(ScorerSpec(name="includes", weight=1),),
            pass_threshold=1,
            time_s=30,
        )
    ]
    run = bakeoff.run(given, models=[model], output=tmp_path)
    assert run.plan.digest == run.manifest.plan
    bakeoff.run(given, models=[model], output=tmp_path, resume="latest")
    assert asked == 1
    assert run.plan.digest == bakeoff.load_run(output=tmp_path).plan.digest


def test_nothing_to_run_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        bakeoff.run(output=tmp_path)
    with pytest.raises(UsageError, match="no model is named"):
        bakeoff.run(TASKS, output=tmp_path)
    with pytest.raises(UsageError, match="there are no tests"):
        bakeoff.run([], models=[adds], output=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_can_be_looked_at_before_it_runs() -> None:
    prepared = plan(TASKS, models=[adds, "scripted"], rollouts=3)
    assert len(prepared.plan) == 24
    assert [c.id for c in prepared.plan.candidates] == ["adds", "scripted/echo"]


# --- parts of one's own


async def adds_later(request: Request) -> Completion:
    await asyncio.sleep(0)
    usage = Usage(input_tokens=5, output_tokens=2, cost_usd=0.25)
    return Completion(text=adds(request), usage=usage, stop_reason="stop", model="mine")


@dataclass
class OwnModel:
    closed: list[bool] = field(default_factory=list)

    async def complete(self, request: Request) -> Completion:
        return Completion(text=adds(request))

    async def close(self) -> None:
        self.closed.append(True)


def test_a_model_is_a_function_an_async_function_or_an_object(tmp_path: Path) -> None:
    own = OwnModel()
    run = bakeoff.run(TASKS, models=[adds, adds_later, own], output=tmp_path)
    summary = run.summary()
    assert [c.candidate for c in summary.candidates] == ["adds", "adds_later", "OwnModel"]
    assert [c.total.score.mean for c in summary.candidates] == [1.0] * 3
    tokens = summary.candidates[1].total.tokens
    assert (tokens.input, tokens.output, tokens.cost_usd) == (20, 8, 1.0)
    assert summary.candidates[0].total.tokens.input is None
    assert own.closed == [True]


def solve(task: Task, model: object) -> str:
    return f"It is {task.target}"


async def solve_twice(task: Task, model: OwnModel, times: int = 2) -> Outcome:
    answers = [await model.complete(Request(messages=task.messages)) for _ in range(times)]
    return Outcome(answer=answers[-1].text, notes={"asked": times})


class OwnAgent:
    async def solve(self, task: Task, context: object) -> Outcome:
        return Outcome(answer=str(task.target))


def test_an_agent_is_a_function_an_async_function_or_an_object(tmp_path: Path) -> None:
    run = bakeoff.run(
        TASKS, models=[adds], agents=[solve, solve_twice, OwnAgent()], output=tmp_path
    )
    summary = run.summary()
    assert [c.candidate for c in summary.candidates] == [
        "solve+adds",
        "solve_twice+adds",
        "OwnAgent+adds",
    ]
    assert [c.total.score.mean for c in summary.candidates] == [1.0] * 3
    spent = {t.candidate_id: t.attempt.spent.requests for t in run.trials()}
    assert spent == {"solve+adds": 0, "solve_twice+adds": 2, "OwnAgent+adds": 0}


def long_enough(answer: str) -> bool:
    return len(answer) > 3


async def graded(answer: str, target: object) -> dict[str, object]:
    await asyncio.sleep(0)
    return {"score": 0.5, "explanation": "half", "target": target}


class OwnScorer:
    async def score(self, task: Task, outcome: Outcome, context: object) -> Score:
        return Score(scorer="own", value=0.0, explanation=f"{task.id}: {outcome.answer}")


def test_a_scorer_is_a_function_an_async_function_or_an_object(tmp_path: Path) -> None:
    run = bakeoff.run(
        TASKS[:1], models=[adds], scorers=[long_enough, graded, OwnScorer()], output=tmp_path
    )
    (trial,) = run.trials()
    assert [s.value for s in trial.attempt.scores] == [1.0, 0.5, 0.0]
    assert [s.explanation for s in trial.attempt.scores] == [None, "half", "t0: It is 1."]
    assert trial.attempt.scores[1].details == {"target": 1}
    assert (trial.attempt.score, trial.attempt.passed) == (0.5, False)


def test_a_scorer_can_be_given_by_name_and_by_spec(tmp_path: Path) -> None:
    scorers: list[str | ScorerSpec] = [
        "includes",
        ScorerSpec(name="pattern", settings={"pattern": "^It"}, weight=3.0),
    ]
    run = bakeoff.run(TASKS[:1], models=[adds], scorers=scorers, output=tmp_path)
    (trial,) = run.trials()
    assert [(s.scorer, s.value, s.weight) for s in trial.attempt.scores] == [
        ("includes", 1.0, 1.0),
        ("pattern", 1.0, 3.0),
    ]


def _broken(*_: object) -> str:
    raise ValueError("oh no")


@pytest.mark.parametrize(
    ("parts", "boundary"),
    [
        ({"models": [_broken]}, "provider"),
        ({"models": [adds], "agents": [_broken]}, "agent"),
        ({"models": [adds], "scorers": [lambda answer: _broken()]}, "scorer"),
        ({"models": [adds], "scorers": [lambda answer: 7]}, "scorer"),
        ({"models": [adds], "scorers": [lambda answer: float("nan")]}, "scorer"),
        ({"models": [lambda request: 7]}, "provider"),
    ],
)
def test_a_part_that_breaks_is_a_fault_at_its_boundary_and_stops_nothing(
    tmp_path: Path, parts: dict[str, Any], boundary: str
) -> None:
    run = bakeoff.run(TASKS, output=tmp_path, **parts)
    assert {t.attempt.fault and t.attempt.fault.boundary for t in run.trials()} == {boundary}
    assert run.summary().buckets.faults == 4
    assert _mean(run) is None


def test_specs_say_more_than_names(tmp_path: Path) -> None:
    with Loopback() as server:
        run = bakeoff.run(
            [Task(id="a", messages=(Message(role="user", content="hi"),))],
            models=[
                ModelSpec(
                    provider="openai-compatible",
                    name="m",
                    base_url=server.url,
                    parameters={"temperature": 0.5},
                    headers={"X-Mine": "yes"},
                    label="warm",
                )
            ],
            agents=[AgentSpec(name="direct", version="9")],
            output=tmp_path,
        )
        (asked,) = server.requests
    assert asked.body["temperature"] == 0.5
    assert asked.headers["X-Mine"] == "yes"
    assert [c.candidate for c in run.summary().candidates] == ["warm"]
    assert run.summary().buckets.unchecked == 1


def test_a_model_of_ones_own_may_lie_beside_the_run_file(tmp_path: Path) -> None:
    (tmp_path / "own_beside.py").write_text("def answer(request):\n    return 'yes'\n")
    run = tmp_path / "run.toml"
    run.write_text("models = ['own_beside:answer']\n[[tasks]]\nid = 'a'\nprompt = 'p'\n")
    assert bakeoff.run(run, output=tmp_path / "runs").summary().buckets.unchecked == 1


# --- while it goes


def test_a_listener_hears_every_trial_once(tmp_path: Path) -> None:
    heard: list[Event] = []
    run = bakeoff.run(TASKS, models=[adds], output=tmp_path, listener=heard.append)
    assert heard[0] == RunStarted(run.id, str(run.folder), 4, 0, candidates={"adds": 4})
    assert heard[-1] == RunEnded(run.id, stopped_early=False)
    assert sum(isinstance(e, TrialStarted) for e in heard) == 4
    assert [e.last for e in heard if isinstance(e, TrialEnded)] == [True] * 4


def test_a_stop_finishes_what_is_under_way_and_a_resume_does_the_rest(tmp_path: Path) -> None:
    stop = Stop()

    def stopping(request: Request) -> str:
        stop.request()
        return adds(request)

    run = bakeoff.run(TASKS, models=[stopping], output=tmp_path, stop=stop, parallel=1)
    buckets = run.summary().buckets
    assert (buckets.scored, buckets.not_run) == (1, 3)
    run = bakeoff.run(TASKS, models=[stopping], output=tmp_path, resume="latest")
    assert run.summary().buckets.scored == 4


def test_it_runs_in_the_loop_that_is_running(tmp_path: Path) -> None:
    async def main() -> bakeoff.Run:
        loop = asyncio.get_running_loop()

        async def same_loop(request: Request) -> str:
            assert asyncio.get_running_loop() is loop
            return adds(request)

        return await bakeoff.run_async(TASKS, models=[same_loop], output=tmp_path)

    assert _mean(asyncio.run(main())) == 1.0


def test_the_plain_call_works_where_a_loop_already_runs_as_in_a_notebook(tmp_path: Path) -> None:
    async def notebook() -> float | None:
        run = bakeoff.run(TASKS, models=[adds], output=tmp_path)
        return _mean(rescore(run))

    assert asyncio.run(notebook()) == 1.0


def test_stored_answers_can_be_scored_again(tmp_path: Path) -> None:
    strict = [_task(n) for n in range(4)]
    run = bakeoff.run(strict, models=[adds], output=tmp_path)
    wrong = [
        Task(id=t.id, messages=t.messages, target=-1, scorers=t.scorers, pass_threshold=0.5)
        for t in strict
    ]
    assert _mean(rescore(run, wrong)) == 0.0
    assert _mean(bakeoff.load_run(output=tmp_path)) == 0.0


def test_two_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two different parts are called"):
        bakeoff.run(
            TASKS, models=[adds], output=tmp_path, scorers=[lambda answer: 1, lambda answer: 0]
        )


def test_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises((UsageError, TypeError), match="rolouts"):
        bakeoff.run(TASKS, models=[adds], output=tmp_path, rolouts=3)  # type: ignore[call-arg]
