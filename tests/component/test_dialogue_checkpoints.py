"""Dialogues that are cut off: what is saved, how it goes on, and what the books say then."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib.redact import Redactor
from bakeoff.core.budget import Price, Tariff
from bakeoff.core.candidate import Limits
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Outcome, Request, Usage
from bakeoff.core.ports import Context
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import Task
from bakeoff.engine.budget import AttemptBill, Budget
from bakeoff.engine.trial import run_attempt
from bakeoff.frontends.agent_bench.view import conversation_of
from bakeoff.stores.checkpoints import FileCheckpoints, checkpoint_file, steps_in
from support.dialogues import Scene, Script, agrees, instructs, said

DOWN = ProviderError("HTTP 503", transient=True)
LINES = [instructs("One."), instructs("Two."), instructs("Three.", end=True)]


def scene(folder: Path, *, agent: list[Any], skip: int = 0, redactor: Redactor | None = None) -> Scene:  # fmt: skip
    """A talk of three turns, of which the roles have said *skip* messages before."""
    return Scene(
        instructor=Script(LINES[skip:]),
        agent_model=Script(agent),
        supervisor=Script([agrees()] * 3),
        dialogue=Dialogue(objective="x"),
        checkpoints=FileCheckpoints(folder, redactor or Redactor()),
    )


def test_a_fault_that_may_pass_costs_one_question_and_not_the_conversation(tmp_path: Path) -> None:
    first = scene(tmp_path, agent=["a", DOWN])
    broken = first.play(number=1)
    assert broken.status is Status.FAULTED
    second = scene(tmp_path, agent=["b", "c"], skip=2)
    attempt = second.play(number=2)
    assert attempt.status is Status.COMPLETED
    assert [text for _, text in said(attempt)] == ["One.", "a", "Two.", "b", "Three.", "c"]
    assert [len(s.asked) for s in (second.instructor, second.agent_model)] == [1, 2]
    # the record tells what the whole conversation took, the bill only what this attempt did
    assert attempt.spent.requests == 3
    assert attempt.roles["instructor"].requests == 3
    assert broken.bill.tokens == 12 * 5
    assert attempt.bill.tokens == 12 * 4  # two replies, one message, one look at it
    assert attempt.elapsed_s >= broken.elapsed_s


def test_a_conversation_that_broke_off_can_be_read_and_is_never_scored(tmp_path: Path) -> None:
    broken = scene(tmp_path, agent=["a", DOWN]).play(number=1)
    assert broken.outcome is not None
    assert broken.outcome.unfinished
    assert [text for _, text in said(broken)] == ["One.", "a", "Two."]
    assert "turn 1 agent: a" in (broken.outcome.log or "")
    assert broken.score is None
    assert not broken.scorable
    whole = scene(tmp_path, agent=["b", "c"], skip=2).play(number=2)
    assert whole.scorable


def test_an_attempt_that_was_killed_is_booked_with_the_one_that_goes_on(tmp_path: Path) -> None:
    broken = scene(tmp_path, agent=["a", DOWN]).play(number=1)
    again = scene(tmp_path, agent=["b", "c"], skip=2)
    budget = Budget()
    tab = AttemptBill(budget)
    # the same number: nobody wrote down that the first one ended
    attempt = asyncio.run(run_attempt(again.trial(), again.parts_for(), number=1, attempt_bill=tab))
    assert attempt.bill.tokens == broken.bill.tokens + 12 * 4
    assert attempt.spent.requests == 3


def test_limits_count_what_was_spent_before(tmp_path: Path) -> None:
    limited = Limits(requests=2)
    replace(scene(tmp_path, agent=["a", DOWN]), limits=limited).play(number=1)
    again = replace(scene(tmp_path, agent=["b", "never"], skip=2), limits=limited)
    attempt = again.play(number=2)
    assert attempt.status is Status.LIMITED
    assert [text for role, text in said(attempt) if role == "assistant"] == ["a", "b"]


def test_another_trial_in_the_same_place_uses_nothing_of_it(tmp_path: Path) -> None:
    scene(tmp_path, agent=["a", DOWN]).play(number=1)
    other = scene(tmp_path, agent=["x", "y", "z"])
    other.dialogue = Dialogue(objective="another")
    attempt = other.play(number=1)
    assert [text for role, text in said(attempt) if role == "assistant"] == ["x", "y", "z"]
    assert attempt.spent.requests == 3


def test_an_agent_that_is_given_the_whole_talk_is_called_once_for_each_message(
    tmp_path: Path,
) -> None:
    called = []

    class Own:
        """Asks a client of its own, and its model only in the second turn."""

        async def solve(self, task: Task, context: Context) -> Outcome:
            called.append(task.messages[-1].content)
            if len(task.messages) == 3:
                await context.model.complete(Request(messages=task.messages))
            return Outcome(answer=f"re: {called[-1]}", model="own", notes={"calls": len(called)})

    first = scene(tmp_path, agent=["thought"])
    first.agent, first.instructor = Own(), Script([*LINES[:2], DOWN])
    first.play(number=1)
    assert called == ["One.", "Two."]
    again = scene(tmp_path, agent=[], skip=2)
    again.agent = Own()
    attempt = again.play(number=2)
    assert called == ["One.", "Two.", "Three."]
    replies = [text for role, text in said(attempt) if role == "assistant"]
    assert replies == ["re: One.", "re: Two.", "re: Three."]
    assert attempt.outcome is not None
    assert (attempt.outcome.model, attempt.outcome.notes["calls"]) == ("own", 3)
    steps = steps_in(checkpoint_file(tmp_path / "checkpoints", again.trial().name))
    heard = conversation_of(again.trial(), steps)["conversation_history"]
    assert isinstance(heard, list)
    assert [one["all_messages"][-1]["content"] for one in heard if one["party"] == "agent"] == [
        "re: One.",
        "thought",
        "re: Two.",
        "re: Three.",
    ]


def test_an_agent_that_takes_another_way_makes_the_rest_worthless(tmp_path: Path) -> None:
    class Fickle:
        """Works on from turn to turn, and says something of its own before the model's words."""

        def __init__(self, word: str) -> None:
            self._word = word

        async def solve(self, task: Task, context: Context) -> Outcome:
            answer = await context.model.complete(Request(messages=task.messages))
            return Outcome(answer=f"{self._word} {answer.text}")

        async def resume(self, task: Task, context: Context, message: str) -> Outcome:
            return await self.solve(task, context)

    first = scene(tmp_path, agent=["a", DOWN])
    first.agent = Fickle("old")
    first.play(number=1)
    again = scene(tmp_path, agent=["b", "c"], skip=1)
    again.agent = Fickle("new")
    attempt = again.play(number=2)
    replies = [text for role, text in said(attempt) if role == "assistant"]
    assert replies == ["new a", "new b", "new c"]
    assert (
        len(again.instructor.asked) == 2
    )  # what it was asked after another reply is another question
    third = scene(tmp_path, agent=[])
    third.agent = Fickle("new")
    assert [t for r, t in said(third.play(number=3)) if r == "assistant"] == replies
    assert third.agent_model.asked == []


@pytest.mark.parametrize("rest", [b'{"trial": "x", "at": 1, "en', b"\x00\xff", b"{}"])
def test_a_line_that_a_crash_cut_off_never_happened(tmp_path: Path, rest: bytes) -> None:
    one = scene(tmp_path, agent=["a", DOWN])
    one.play(number=1)
    file = checkpoint_file(tmp_path / "checkpoints", one.trial().name)
    whole = file.read_bytes()
    before = len(steps_in(file))
    assert before == 6
    file.write_bytes(whole + rest)
    assert len(steps_in(file)) == before
    again = scene(tmp_path, agent=["b", "c"], skip=2)
    assert again.play(number=2).status is Status.COMPLETED
    assert len(steps_in(file)) == 12


def test_no_secret_is_saved(tmp_path: Path) -> None:
    keeps = scene(tmp_path, agent=["my key is sk-secret-123456", DOWN], redactor=Redactor(["sk-secret-123456"]))  # fmt: skip
    keeps.play(number=1)
    file = checkpoint_file(tmp_path / "checkpoints", keeps.trial().name)
    assert b"sk-secret" not in file.read_bytes()


def test_what_a_conversation_costs_is_kept_for_every_party(tmp_path: Path) -> None:
    priced = Tariff(price=Price(input=1.0, output=1.0))

    def play(given: Scene, number: int) -> Attempt:
        rig = replace(given.parts_for(), tariff=priced, role_tariffs={"instructor": priced})
        return asyncio.run(run_attempt(given.trial(), rig, number=number))

    play(scene(tmp_path, agent=["a", DOWN]), 1)
    attempt = play(scene(tmp_path, agent=["b", "c"], skip=2), 1)
    assert attempt.spent.usage == Usage(input_tokens=30, output_tokens=6, cost_usd=36e-6)
    assert attempt.roles["instructor"].usage.cost_usd == pytest.approx(36e-6)
    assert attempt.bill.cost_usd == pytest.approx(72e-6)
