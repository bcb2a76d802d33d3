"""Main effects: one factor of the candidates averaged over the other, task by task."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from bakeoff.core.candidate import AgentSpec, Candidate, ModelSpec, PromptSpec
from bakeoff.stats.main_effects import main_effects
from bakeoff.stats.pairwise import CandidateScores, pairwise

PROMPTS, MODELS = ("a", "b"), ("x", "y", "z")


@dataclass
class Tally:
    total: float
    n: int = 1
    passed: int = 0


def candidate(prompt: str | None, model: str) -> Candidate:
    spec = None if prompt is None else PromptSpec(name=prompt, text=prompt)
    return Candidate(
        id=f"{prompt} · {model}", model=ModelSpec(provider="p", name=model), prompt=spec
    )


CROSSED = [candidate(prompt, model) for prompt in PROMPTS for model in MODELS]


def scored(
    candidates: list[Candidate],
    scores: Mapping[str, Mapping[str, float]],
    faults: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, CandidateScores]:
    return {
        c.id: CandidateScores(
            candidate=c.id,
            tasks={"": {task: Tally(total=score) for task, score in scores[c.id].items()}},
            faults=(faults or {}).get(c.id, {}),
        )
        for c in candidates
    }


def drawn(
    generator: random.Random, *, tasks: int, better: float = 0.0
) -> dict[str, dict[str, float]]:
    """Scores that are alike within a task, with prompt b better by so much."""
    hard = {f"t{n}": generator.random() for n in range(tasks)}
    return {
        c.id: {
            task: float(generator.random() < ease + (better if c.id.startswith("b") else 0))
            for task, ease in hard.items()
        }
        for c in CROSSED
    }  # fmt: skip


def test_a_level_is_compared_by_its_means_over_the_other_factor() -> None:
    scores = drawn(random.Random(1), tasks=60, better=0.3)
    prompts, models = main_effects(CROSSED, scored(CROSSED, scores))
    assert (prompts.factor, prompts.other, prompts.across) == ("prompt", "model", 3)
    assert (models.factor, models.other, models.across) == ("model", "prompt", 2)
    by_hand = [
        CandidateScores(
            candidate=prompt,
            tasks={"": {f"t{n}": Tally(total=sum(scores[f"{prompt} · {m}"][f"t{n}"] for m in MODELS), n=3)
                        for n in range(60)}},
        )
        for prompt in PROMPTS
    ]  # fmt: skip
    assert prompts.comparison == pairwise(by_hand)
    (pair,) = prompts.comparison.pairs
    assert pair.better == "b"
    assert len(models.comparison.pairs) == 3


def test_without_a_difference_a_verdict_is_as_rare_as_promised() -> None:
    generator, wrong = random.Random(7), 0
    for _ in range(60):
        prompts, _models = main_effects(CROSSED, scored(CROSSED, drawn(generator, tasks=30)))
        wrong += prompts.comparison.pairs[0].better is not None
    assert wrong <= 8  # 5 % of 60 are 3; more than 8 come once in 200 times


def test_a_task_that_one_candidate_of_a_level_did_not_do_is_left_out() -> None:
    scores = drawn(random.Random(2), tasks=10)
    del scores["a · x"]["t3"]
    prompts, _ = main_effects(CROSSED, scored(CROSSED, scores))
    assert prompts.comparison.tasks == 9


def test_faults_of_one_model_bound_the_mean_of_its_prompt() -> None:
    scores = {c.id: {f"t{n}": float(c.id[0] == "b") for n in range(8)} for c in CROSSED}
    broken = {f"t{n}": 1 for n in range(8)}
    scores["b · x"] = {}
    faulted = {"b · x": broken}
    (pair,) = main_effects(CROSSED, scored(CROSSED, scores, faulted))[0].comparison.pairs
    assert pair.tasks == 8
    assert pair.better == "b"  # two of three models are right on every task, whatever the third is
    every = {c.id: broken for c in CROSSED if c.id[0] == "b"}
    scores = {c.id: {} if c.id[0] == "b" else scores[c.id] for c in CROSSED}
    (pair,) = main_effects(CROSSED, scored(CROSSED, scores, every))[0].comparison.pairs
    assert pair.better is None


@pytest.mark.parametrize(
    "candidates",
    [
        CROSSED[:3],  # one prompt
        [CROSSED[0], CROSSED[3]],  # one model
        CROSSED[:5],  # not every prompt with every model
        [candidate(None, model) for model in MODELS],
    ],
)
def test_without_two_levels_of_both_factors_there_are_no_main_effects(
    candidates: list[Candidate],
) -> None:
    scores = drawn(random.Random(3), tasks=5)
    named = {c.id: scores.get(c.id, scores["a · x"]) for c in candidates}
    assert main_effects(candidates, scored(candidates, named)) == ()


def test_agents_are_a_factor_beside_prompts() -> None:
    model = ModelSpec(provider="p", name="m")
    candidates = [
        Candidate(id=f"{p}{a}", model=model, agent=AgentSpec(name=a), prompt=PromptSpec(name=p, text=p))
        for p in PROMPTS
        for a in ("shell", "codex")
    ]  # fmt: skip
    scores = {c.id: {"t1": 1.0, "t2": 0.0} for c in candidates}
    prompts, agents = main_effects(candidates, scored(candidates, scores))
    assert (prompts.other, agents.factor) == ("agent", "agent")
    assert [pair.first for pair in agents.comparison.pairs] == ["shell+p/m"]
