"""The lower half of the page: each model with what it left, and what was equal for all of them."""

from collections.abc import Iterator, Mapping

from bakeoff.core.values import Json
from bakeoff.reports import in_words
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.evidence import Evidence
from bakeoff.reports.html_evidence import evidence
from bakeoff.reports.html_page import listed
from bakeoff.reports.html_text import chip, code, esc
from bakeoff.stats.censored import TimeToSolve
from bakeoff.stats.head_to_head import RolloutFigures

_MOST_EVIDENCE = 20_000_000
_ELSEWHERE = '<p class="quiet">More is in the folder run/artifacts: this page is long enough.</p>'
_SERVED = {
    "digest": "Digest",
    "quantization": "Quantisation",
    "size_bytes": "Size",
    "context_length": "Context length",
    "parameter_count": "Parameters",
    "family": "Family",
}
_METHOD = """\
Success is what the hidden check, or else the judge, said of the work in a clean copy of the files; \
without either the result is unchecked. Time is the agent's own, without set-up and grading. Prompts \
are requests made to the model, interventions are messages that the instructor had to add after the first. \
A model counts as successful where more than half of its rollouts solved the task. \
Work that passes though its agent was stopped at the limit is a success, and is not ranked among \
those that finished: nobody knows what finishing would have taken. \
Rankings compare every two models with a permutation test over rollouts, adjusted after Holm; a rank \
range is what the data leave open at 95 %, whatever a rollout that broke would have taken. The mean time to solve is the area under a Kaplan-Meier \
curve up to the time limit: what was not solved or not finished is censored there, what broke at the \
moment it broke. \
All of it holds for this one task."""


def model_details(comparison: Comparison) -> str:
    """Return a part to open for each model, with as much of what it left as a browser can bear."""
    shown, room = [], _MOST_EVIDENCE
    for number, one in enumerate(in_order(comparison), start=1):
        rollouts = []
        for took, left in zip(one.figures.rollouts, one.evidence, strict=True):
            alone = one.figures.planned == 1
            told = _rollout(took, left, alone=alone) if room > 0 else _ELSEWHERE
            room -= len(told)
            rollouts.append(told)
        shown.append(_model(one, anchor(number), "".join(dict.fromkeys(rollouts))))
    return f"<h2>Models</h2>{''.join(shown)}"


def anchor(number: int) -> str:
    """Return where on the page the model with this *number*, in the order of a reader, is told of."""
    return f"model-{number}"


def _model(one: Competitor, at: str, rollouts: str) -> str:
    means = one.figures.means
    took = [in_words.seconds(means.seconds.value)] if means.seconds.value is not None else []
    if means.prompts.value is not None:
        took.append(f"{in_words.number(means.prompts.value)} prompts")
    nothing = '<p class="quiet">It has not been run yet.</p>'
    return (
        f'<details class="card model"><summary><h3>{esc(one.display_name)}</h3>'
        f"{chip(one.status, one.figures.rollouts)}"
        f'<span class="quiet">{esc(" · ".join(took))}</span></summary>'
        f'<div class="inside" id="{at}">{_facts(one)}{rollouts or nothing}</div></details>'
    )


def _facts(one: Competitor) -> str:
    pairs = [("Model", one.model)]
    pairs += [(told, _served(name, one.served.get(name))) for name, told in _SERVED.items()]
    if one.figures.to_solve is not None:
        pairs.append(("Time to solve", _to_solve(one.figures.to_solve)))
    return listed(pairs)


def _served(name: str, value: Json) -> str:
    if value is None:
        return ""
    if name == "size_bytes" and isinstance(value, int | float):
        return in_words.megabytes(value)
    return in_words.number(value) if isinstance(value, int | float) else str(value)


def _to_solve(found: TimeToSolve) -> str:
    """Return what is known of the time to solve, in a sentence."""
    told = f"solved and finished in {found.solved} of {in_words.counted(found.rollouts, 'rollout')}"
    if found.restricted_mean_s is None:
        return told
    told += f"; mean up to {in_words.seconds(found.horizon_s)}: {in_words.seconds(found.restricted_mean_s)}"
    if found.interval is not None:
        low, high = in_words.seconds(found.interval.low), in_words.seconds(found.interval.high)
        told += f" (95 %: {low} to {high}, {found.interval.method})"
    if found.median_s is not None:
        told += f"; median {in_words.seconds(found.median_s)}"
    return f"{told}; PAR2 {in_words.seconds(found.par2_s)}"


def _rollout(took: RolloutFigures, left: Evidence, *, alone: bool) -> str:
    shown = evidence(left, alone=alone)
    if alone:
        return f'<div class="rollout">{shown}</div>'
    time = f'<span class="quiet">{esc(in_words.seconds(took.seconds))}</span>'
    told = chip(took.verdict.value, [took])
    return (
        f'<details class="rollout"><summary>Rollout {took.rollout + 1} {told} {time}</summary>'
        f"{shown}</details>"
    )


def about(comparison: Comparison) -> str:
    """Return the machine, the task and how the figures were got."""
    machine = listed([(name, _told(value)) for name, value in _machine(comparison.machine)])
    return (
        '<h2>How it was measured</h2><div class="two">'
        f'<div class="card about"><h3>Machine</h3>{machine}</div>'
        f'<div class="card method"><h3>Method</h3><p>{esc(_METHOD)}</p></div></div>'
        '<h2>The task</h2><details class="card model"><summary>'
        f"<h3>What every model was told</h3></summary>"
        f'<div class="inside">{code(comparison.instruction, 60_000)}</div></details>'
    )


_MACHINE = {
    "cpu": "CPU",
    "cores": "Cores",
    "memory_bytes": "Memory",
    "os": "System",
    "python": "Python",
    "bakeoff": "Bakeoff",
    "ollama": "Ollama",
}


def _machine(machine: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, told in _MACHINE.items():
        value = machine.get(name)
        if name == "memory_bytes" and isinstance(value, int | float):
            value = in_words.megabytes(value)
        yield told, value


def _told(value: Json) -> str:
    return "" if value is None else str(value)
