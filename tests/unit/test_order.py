"""The order of trials."""

from bakeoff.core.candidate import Candidate, ModelSpec
from bakeoff.core.plan import Block, Plan
from bakeoff.core.run_spec import Adaptive
from bakeoff.core.task import Message, Task
from bakeoff.planning.expand import ordered


def _plan(*providers: str) -> Plan:
    tasks = tuple(Task(id=i, messages=(Message(role="user", content=i),)) for i in "ab")
    candidates = tuple(
        Candidate(id=f"{p}{n}", model=ModelSpec(provider=p, name=str(n)))
        for n, p in enumerate(providers)
    )
    return Plan(blocks=(Block(tasks=tasks, candidates=candidates, rollouts=2),))


def _names(plan: Plan) -> list[str]:
    return [trial.name for trial in plan]


def test_a_task_is_put_to_all_candidates_before_the_next_one() -> None:
    plan = ordered(_plan("openai", "groq"))
    assert _names(plan)[:4] == ["a@openai0#0", "a@groq1#0", "b@openai0#0", "b@groq1#0"]


def test_a_server_that_swaps_models_is_asked_for_one_model_after_another() -> None:
    plan = ordered(_plan("ollama", "ollama"))
    assert _names(plan)[:4] == ["a@ollama0#0", "b@ollama0#0", "a@ollama1#0", "b@ollama1#0"]
    assert _names(plan)[4] == "a@ollama0#1", "still rollout by rollout"


def test_one_local_model_has_nothing_to_be_swapped_with() -> None:
    assert not ordered(_plan("ollama", "openai")).one_after_another


def test_the_order_is_no_part_of_the_plans_identity() -> None:
    plan = _plan("ollama", "ollama")
    assert ordered(plan).digest == plan.digest
    assert sorted(_names(ordered(plan))) == sorted(_names(plan))


def test_a_drawn_order_still_spares_a_server_that_swaps_models() -> None:
    plan = ordered(_plan("ollama", "ollama"), Adaptive())
    names = [name.partition("@")[2] for name in _names(plan)]
    assert names == ["ollama0#0"] * 2 + ["ollama1#0"] * 2 + ["ollama0#1"] * 2 + ["ollama1#1"] * 2
    other = _names(ordered(_plan("openai", "groq"), Adaptive()))
    assert [name.partition("@")[0] for name in other] in (list("aaaabbbb"), list("bbbbaaaa"))
