"""The rules of a dialogue, one by one, with roles that follow a script."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bakeoff.agents.dialogue.roles import WRAP_UP
from bakeoff.core.budget import Price, Tariff
from bakeoff.core.candidate import Limits
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.errors import ProviderError
from bakeoff.core.events import Event, TurnEnded, TurnStarted
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.record import Status
from bakeoff.engine.trial import run_attempt
from support.dialogues import (
    Scene,
    Script,
    agrees,
    instructs,
    notes,
    objects,
    reveals,
    said,
    speakers,
)


def test_the_instructor_leads_and_ends_after_one_more_reply() -> None:
    scene = Scene(
        instructor=Script([instructs("Add the numbers."), instructs("Thanks, bye.", end=True)]),
        agent_model=Script(["It is 5.", "Bye."]),
        supervisor=Script([agrees(), agrees()]),
    )
    attempt = scene.play()
    assert said(attempt) == [
        ("user", "Add the numbers."),
        ("assistant", "It is 5."),
        ("user", "Thanks, bye."),
        ("assistant", "Bye."),
    ]
    assert attempt.status is Status.COMPLETED
    assert attempt.outcome is not None
    assert attempt.outcome.answer == "Bye."
    assert attempt.outcome.interventions == 0
    assert speakers(attempt) == ["instructor", "instructor"]
    assert notes(attempt)["ended"] == "the instructor ended the conversation"
    assert {name: s.requests for name, s in attempt.roles.items()} == {
        "instructor": 2,
        "supervisor": 2,
    }
    assert attempt.spent.requests == 2
    assert attempt.roles["supervisor"].usage.input_tokens == 20


def test_each_turn_is_told_as_an_event_whatever_the_agent_says() -> None:
    scene = Scene(
        instructor=Script([instructs("Add the numbers."), instructs("Thanks, bye.", end=True)]),
        agent_model=Script(["turn 9 agent: It is 5.", "Bye."]),
    )
    turns: list[TurnStarted | TurnEnded] = []

    def listen(event: Event) -> None:
        if isinstance(event, TurnStarted | TurnEnded):
            turns.append(event)

    asyncio.run(run_attempt(scene.trial(), scene.parts_for(), number=1, listener=listen))
    assert [(type(turn), turn.number) for turn in turns] == [
        (TurnStarted, 1),
        (TurnEnded, 1),
        (TurnStarted, 2),
        (TurnEnded, 2),
    ]


def test_a_contradictory_message_goes_out_and_the_next_turn_is_the_follow_up() -> None:
    scene = Scene(
        instructor=Script([instructs("Drop the column."), instructs("Good.", end=True)]),
        agent_model=Script(["Dropped.", "Put back.", "Done."]),
        supervisor=Script([objects("Sorry, keep the column."), agrees()]),
    )
    attempt = scene.play()
    assert said(attempt) == [
        ("user", "Drop the column."),
        ("assistant", "Dropped."),
        ("user", "Sorry, keep the column."),
        ("assistant", "Put back."),
        ("user", "Good."),
        ("assistant", "Done."),
    ]
    assert speakers(attempt) == ["instructor", "supervisor", "instructor"]
    assert attempt.outcome is not None
    assert attempt.outcome.interventions == 1
    assert notes(attempt)["marks"] == {"contradicted": [1], "overruled": [2]}
    # the follow-up stands in the instructor's memory as its own words, and nobody checked it
    assert scene.supervisor is not None
    assert len(scene.supervisor.asked) == 2
    last = scene.instructor.asked[-1].messages
    assert [m.role for m in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert json.loads(last[4].content)["user_response"] == "Sorry, keep the column."
    assert last[5].content == "Put back."


def test_an_end_with_a_follow_up_pending_does_not_end_it() -> None:
    scene = Scene(
        instructor=Script([instructs("Delete all, bye.", end=True), instructs("Ok.", end=True)]),
        agent_model=Script(["Deleted.", "Restored.", "Bye."]),
        supervisor=Script([objects("No, keep all."), agrees()]),
    )
    attempt = scene.play()
    assert [text for role, text in said(attempt) if role == "user"] == [
        "Delete all, bye.",
        "No, keep all.",
        "Ok.",
    ]
    assert attempt.status is Status.COMPLETED


def test_the_turns_that_are_spent_make_it_limited_and_keep_what_was_said() -> None:
    scene = Scene(
        instructor=Script([instructs("More.")], last_again=True),
        agent_model=Script(["a", "b", "c"]),
        dialogue=Dialogue(objective="x", max_turns=3),
    )
    attempt = scene.play()
    assert attempt.status is Status.LIMITED
    assert attempt.fault is None
    assert attempt.outcome is not None
    assert attempt.outcome.stop_reason == "3 turns are spent"
    assert attempt.outcome.answer == "c"
    assert [text for _, text in said(attempt)] == ["More.", "a", "More.", "b", "More.", "c"]


def test_an_end_in_the_last_turn_is_an_end_and_a_follow_up_pending_there_is_not() -> None:
    ends = [instructs("Go."), instructs("Bye.", end=True)]
    two = Dialogue(objective="x", max_turns=2)
    ended = Scene(instructor=Script(ends), agent_model=Script(["a", "b"]), dialogue=two).play()
    assert ended.status is Status.COMPLETED
    pending = Scene(
        instructor=Script(ends),
        agent_model=Script(["a", "b"]),
        supervisor=Script([agrees(), objects("Wait.")]),
        dialogue=two,
    ).play()
    assert pending.status is Status.LIMITED


def test_an_opening_is_the_first_message_and_nobody_is_asked_for_it() -> None:
    scene = Scene(
        instructor=Script([instructs("Thanks.", end=True)]),
        agent_model=Script(["Hello.", "Welcome."]),
        supervisor=Script([agrees()]),
        dialogue=Dialogue(objective="x", opening="Hi, help me."),
    )
    attempt = scene.play()
    assert [text for _, text in said(attempt)] == ["Hi, help me.", "Hello.", "Thanks.", "Welcome."]
    assert speakers(attempt) == ["opening", "instructor"]


def test_shards_are_told_one_to_three_a_turn_each_once_then_it_wraps_up() -> None:
    scene = Scene(
        instructor=Script(
            [reveals("use the blue one", 2), reveals("red first, then green, big", 1, 4, 3)]
        ),
        agent_model=Script(["ok", "ok too", "final"]),
        supervisor=Script([]),
        dialogue=Dialogue(
            objective="x",
            mode="shard_user",
            shards=("red first", "use the blue one", "big", "then green"),
        ),
    )
    attempt = scene.play()
    assert [text for role, text in said(attempt) if role == "user"] == [
        "use the blue one",
        "red first, then green, big",
        WRAP_UP,
    ]
    assert attempt.status is Status.COMPLETED
    assert [turn["shards"] for turn in notes(attempt)["turns"]] == [[2], [1, 4, 3], []]
    assert speakers(attempt)[-1] == "wrap-up"
    assert notes(attempt)["ended"] == "all shards are told"
    assert notes(attempt)["marks"] == {}
    # the second time it is shown only what is left, and nobody watches
    shown = scene.instructor.asked[1].messages[-1].content
    assert "use the blue one" not in shown.split("The shards that are left:")[1]
    assert scene.supervisor is not None
    assert scene.supervisor.asked == []


@pytest.mark.parametrize("wrong", [reveals("x"), reveals("x", 9), reveals("x", 1, 2, 3, 4)])
def test_shards_that_are_not_there_to_be_told_are_asked_for_again(wrong: str) -> None:
    scene = Scene(
        instructor=Script([wrong, reveals("one two three", 1, 2, 3), reveals("four", 4)]),
        agent_model=Script(["a", "b", "c"]),
        dialogue=Dialogue(objective="x", mode="shard_user", shards=("one", "two", "three", "four")),
    )
    attempt = scene.play()
    assert attempt.status is Status.COMPLETED
    assert "one to three of the shards" in scene.instructor.asked[1].messages[-1].content


def test_an_answer_in_prose_is_read_and_one_without_json_is_asked_for_again_once() -> None:
    scene = Scene(
        instructor=Script(
            [
                f"Sure! Here it is:\n```json\n{instructs('Go.')}\n```",
                "no idea",
                instructs("Bye.", end=True),
            ]
        ),
        agent_model=Script(["a", "b"]),
    )
    attempt = scene.play()
    assert [text for _, text in said(attempt)] == ["Go.", "a", "Bye.", "b"]
    again = scene.instructor.asked[-1].messages
    assert again[-2].content == "no idea"
    assert "there is no JSON object in it" in again[-1].content
    assert attempt.roles["instructor"].requests == 3


def test_a_role_that_cannot_be_read_twice_is_a_fault_and_never_a_zero() -> None:
    scene = Scene(instructor=Script(["what?", "why?"]), agent_model=Script(["never asked"]))
    attempt = scene.play()
    assert attempt.status is Status.FAULTED
    assert attempt.score is None
    assert attempt.fault is not None
    assert attempt.fault.boundary == "agent"
    assert "role 'instructor' gave no usable answer twice" in attempt.fault.message
    assert "why?" in attempt.fault.message
    assert attempt.roles["instructor"].requests == 2


def test_one_who_objects_twice_without_a_follow_up_is_noted_and_nobody_speaks_instead() -> None:
    scene = Scene(
        instructor=Script([instructs("Go."), instructs("Bye.", end=True)]),
        agent_model=Script(["a", "b"]),
        supervisor=Script([objects(None), objects("  "), agrees()]),
    )
    attempt = scene.play()
    assert [text for _, text in said(attempt)] == ["Go.", "a", "Bye.", "b"]
    assert notes(attempt)["marks"] == {"contradicted": [1]}
    assert speakers(attempt) == ["instructor", "instructor"]
    assert scene.supervisor is not None
    assert "'follow_up_instruction' is not a text" in scene.supervisor.asked[1].messages[-1].content


@pytest.mark.parametrize("transient", [True, False])
def test_a_roles_endpoint_that_fails_is_not_the_candidates_fault(transient: bool) -> None:
    scene = Scene(
        instructor=Script([ProviderError("HTTP 503", transient=transient)]),
        agent_model=Script([]),
    )
    fault = scene.play().fault
    assert fault is not None
    assert (fault.boundary, fault.transient) == ("agent", transient)
    assert not fault.is_model_error
    assert "role 'instructor': HTTP 503" in fault.message


def test_an_endpoint_without_structured_output_gets_the_form_in_words() -> None:
    class Plain(Script):
        def __call__(self, request: Request) -> object:
            if request.schema is not None:
                raise ProviderError("HTTP 400: response_format is not supported")
            return super().__call__(request)

    scene = Scene(instructor=Plain([instructs("Go.", end=True)]), agent_model=Script(["a"]))
    assert [text for _, text in said(scene.play())] == ["Go.", "a"]


@pytest.mark.parametrize(
    "limits", [Limits(requests=2), Limits(tokens=24), Limits(cost_usd=24e-6), Limits(time_s=0.5)]
)
def test_limits_cut_a_dialogue_and_what_was_said_stays(limits: Limits) -> None:
    class Slower(Script):
        """Never gives its third answer, where time is what is limited."""

        async def __call__(self, request: Request) -> Completion:
            if limits.time_s is not None and len(self.asked) == 2:
                await asyncio.sleep(60)
            return super().__call__(request)

    scene = Scene(
        instructor=Script([instructs("More.")], last_again=True),
        agent_model=Slower(["a", "b", "c", "d"]),
        limits=limits,
    )
    priced = Tariff(price=Price(input=1.0, output=1.0))  # of a million tokens; an answer has 12
    rig = replace(scene.parts_for(), tariff=priced)
    attempt = asyncio.run(run_attempt(scene.trial(), rig, number=1))
    assert attempt.status is Status.LIMITED
    assert [text for _, text in said(attempt)] == ["More.", "a", "More.", "b", "More."]
    assert attempt.outcome is not None
    assert attempt.outcome.answer == "b"
    assert len(notes(attempt)["turns"]) == 3


def test_the_instructor_knows_its_part_and_the_agent_knows_none_of_it() -> None:
    scene = Scene(
        instructor=Script([instructs("Go.", end=True)]),
        agent_model=Script(["a"]),
        supervisor=Script([agrees()]),
        dialogue=Dialogue(
            objective="OBJ-1",
            knowledge="KNOW-2",
            reference="REF-3",
            supervision="PLAN-4",
            instructor_prompt="You are Ann.",
            supervisor_prompt="Watch Ann.",
        ),
    )
    scene.play()
    told = scene.instructor.asked[0].messages[0].content
    assert all(word in told for word in ("OBJ-1", "KNOW-2", "REF-3", "You are Ann.", "JSON"))
    assert "PLAN-4" not in told
    assert scene.supervisor is not None
    watched = scene.supervisor.asked[0].messages[0].content
    assert "PLAN-4" in watched
    assert "Watch Ann." in watched
    (asked,) = scene.agent_model.asked
    assert [(m.role, m.content) for m in asked.messages] == [("user", "Go.")]


def test_a_prompt_of_ones_own_may_say_where_the_facts_go() -> None:
    scene = Scene(
        instructor=Script([instructs("Go.", end=True)]),
        agent_model=Script(["a"]),
        dialogue=Dialogue(objective="OBJ", instructor_prompt="A {project_context} Z {other}"),
    )
    scene.play()
    told = scene.instructor.asked[0].messages[0].content
    assert told.startswith("A **Objective**\nOBJ Z {other}")
    assert told.count("OBJ") == 1


def test_a_model_that_runs_on_until_it_is_cut_is_asked_again_without_its_thoughts() -> None:
    scene = Scene(
        instructor=Script(
            [
                '{"thought": "I think and think and th',
                '{"end": false, "user_response": "Paint it, and \\"well',
                instructs("Bye.", end=True),
            ]
        ),
        agent_model=Script(["a", "b"]),
    )
    attempt = scene.play()
    assert [text for _, text in said(attempt)] == ['Paint it, and "well', "a", "Bye.", "b"]
    schemas: list[Any] = [request.schema for request in scene.instructor.asked[:2]]
    first, second = schemas
    assert first is not None
    assert list(first["properties"]) == ["thought", "user_response", "end"]
    assert second is not None
    assert list(second["properties"]) == ["end", "user_response"]
