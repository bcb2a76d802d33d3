"""What a plan may come to: what is counted, and where that is only the beginning."""

from dataclasses import replace

from bakeoff.core.budget import Tariff
from bakeoff.core.candidate import AgentSpec, ModelSpec, PromptSpec
from bakeoff.core.dialogue import Dialogue
from bakeoff.planning.forecast import forecast
from support.plans import candidate, plan, task


def _free(_: ModelSpec) -> Tariff:
    return Tariff(price=None, billed=False)


def test_a_question_and_its_answer_are_all_that_a_bare_model_takes() -> None:
    assert forecast(plan(task("a"), task("b")), _free).more == ()


def test_of_a_dialogue_only_the_first_turn_is_counted_and_that_is_told() -> None:
    short = task("a", dialogue=Dialogue(objective="o", max_turns=3))
    long = task("b", dialogue=Dialogue(objective="o", max_turns=12, opening="x" * 4000))
    may = forecast(plan(short, long), _free)
    assert may.more == ("a dialogue takes up to 12 turns",)
    without = forecast(plan(short, replace(long, dialogue=short.dialogue)), _free)
    assert may.input_tokens > without.input_tokens + 900  # the opening is read as well


def test_an_agent_asks_as_often_as_it_needs_and_nobody_asks_for_one_without_a_model() -> None:
    shell = replace(candidate("s"), agent=AgentSpec(name="shell"))
    nop = replace(candidate("n"), agent=AgentSpec(name="nop", needs_model=False))
    may = forecast(plan(task(), candidates=(candidate("m"), shell, nop)), _free)
    assert may.more == ("agent 'shell' asks as often as it needs",)


def test_what_is_unknown_of_a_model_is_said_once_for_all_prompts() -> None:
    prompts = [PromptSpec(name=name, text=f"{name} {{{{prompt}}}}") for name in "ab"]
    asked = [replace(candidate("m"), id=f"{p.name} · m", prompt=p) for p in prompts]
    (unknown,) = forecast(plan(task(), candidates=asked), _free).unknown
    assert unknown == f"{asked[0].solver} has no max_tokens"
