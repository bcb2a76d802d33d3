"""The scorer `reasoning`: a heuristic about style, which never says whether an answer is right."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.scorers.text import word_count

LABEL = "style heuristic: it never says whether an answer is right"

WEIGHTS: Mapping[str, float] = {
    "step_clarity": 0.15,
    "logical_consistency": 0.20,
    "evidence_integration": 0.15,
    "analysis_depth": 0.15,
    "verification_effort": 0.10,
    "comprehensive_coverage": 0.10,
    "reasoning_pattern": 0.15,
}

# metric: the points of each distinct indicator, and the indicators
_INDICATORS: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "step_clarity": (
        10,
        ("first", "second", "third", "next", "then", "finally", "step 1", "step 2", "step 3"),
    ),
    "logical_consistency": (
        8,
        ("because", "therefore", "consequently", "thus", "hence", "as a result", "due to", "since",
         "given that"),
    ),
    "evidence_integration": (
        12,
        ("according to", "based on", "evidence shows", "data indicates", "studies show",
         "research suggests"),
    ),
    "analysis_depth": (
        10,
        ("analyze", "synthesize", "evaluate", "interpret", "assess", "examine", "investigate"),
    ),
    "verification_effort": (
        15,
        ("verify", "validate", "confirm", "double-check", "review", "examine", "challenge",
         "question"),
    ),
}  # fmt: skip

# reasoning_pattern: 10 points for each word that occurs, 20 for each sequence of expressions that
# occurs in this order on one line; a type without a pattern gets _NO_PATTERN
_WORD_POINTS, _SEQUENCE_POINTS, _NO_PATTERN = 10.0, 20.0, 50.0
_PATTERNS: Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]] = {
    "chain_of_thought": (
        ("step", "first", "second", "then", "next", "finally", "therefore"),
        ((r"step \d",), ("first", "second", "third"), ("then", "therefore")),
    ),
    "multi_hop": (
        ("document", "source", "according to", "based on", "evidence from"),
        (("according to", "from", ""), ("evidence", "suggests", "because")),
    ),
    "verification": (
        ("verify", "check", "confirm", "validate", "review", "double-check"),
        (("let me", "check"), ("verify", "assumption"), ("review", "conclusion")),
    ),
    "mathematical": (
        ("calculate", "equation", "formula", "probability", "statistics"),
        ((r"\d%",), ("probability", r"\d"), ("equation", "equals")),
    ),
}
TYPES = (*_PATTERNS, "multi_step", "scaffolded", "backward", "general")

_ADVICE: Mapping[str, str] = {
    "step_clarity": "Number or name the steps (first, then, finally).",
    "logical_consistency": "Say what follows from what (because, therefore).",
    "evidence_integration": "Say what each claim is based on (according to, based on).",
    "analysis_depth": "Examine and interpret the facts instead of listing them.",
    "verification_effort": "Check the result and question the assumptions.",
    "comprehensive_coverage": "Cover more of the problem; the text is short.",
    "reasoning_pattern": "Follow the kind of reasoning that was asked for.",
}
_SHORTEST = 50
_ENOUGH = 60
_ENOUGH_WORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningReport:
    """The style of a text; metrics and scores are from 0 to 100, rounded to one decimal.

    `indicators` says for each expected indicator whether it occurs; no metric counts it.
    """

    reasoning_type: str
    metrics: Mapping[str, float]
    overall_score: float
    confidence_score: float
    word_count: int
    recommendations: tuple[str, ...]
    indicators: Mapping[str, bool]


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """How much an answer reads like careful reasoning: the overall score / 100.

    A setting that is None comes from `evaluation_config` in the task's metadata, if it is there.
    """

    reasoning_type: str | None = None
    custom_weights: dict[str, float] | None = None
    expected_indicators: list[str] | None = None

    def __post_init__(self) -> None:
        _check("scorer 'reasoning'", self.reasoning_type, self.custom_weights)

    def check(self, task: Task) -> None:
        """Refuse a task with an invalid `evaluation_config`."""
        self._for(task)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Measure the style of the answer."""
        own = self._for(task)
        report = evaluate_reasoning(
            outcome.answer,
            reasoning_type=own.reasoning_type or "general",
            custom_weights=own.custom_weights,
            expected_indicators=own.expected_indicators,
        )
        return Score(
            scorer="reasoning",
            value=min(report.overall_score / 100, 1.0),
            explanation=LABEL,
            details={
                "label": LABEL,
                "reasoning_type": report.reasoning_type,
                **report.metrics,
                "overall_score": report.overall_score,
                "confidence_score": report.confidence_score,
                "word_count": report.word_count,
                "recommendations": list(report.recommendations),
                **({"expected_indicators": dict(report.indicators)} if report.indicators else {}),
            },
        )

    def _for(self, task: Task) -> "Reasoning":
        """Return these settings, completed by those of the task."""
        config = task.metadata.get("evaluation_config")
        if not config:
            return self
        own = {name: value for name, value in vars(self).items() if value is not None}
        try:
            return msgspec.convert({**_known(config), **own}, Reasoning)
        except (msgspec.ValidationError, UsageError) as error:
            raise UsageError(
                f"task {task.id!r}: `evaluation_config`: {error}", task=task.id
            ) from error


def _known(config: Json) -> dict[str, Json]:
    if not isinstance(config, Mapping):
        raise UsageError("it is not an object; write its keys in braces")
    names = [field.name for field in fields(Reasoning)]
    return {name: config[name] for name in names if config.get(name) is not None}


def evaluate_reasoning(
    text: str,
    reasoning_type: str = "general",
    custom_weights: Mapping[str, float] | None = None,
    expected_indicators: Sequence[str] | None = None,
) -> ReasoningReport:
    """Measure the style of *text*.

    `custom_weights` replace the weights of the metrics they name; all are then scaled to sum to 1.
    `expected_indicators` are looked for and reported beside the metrics, which they do not change.
    """
    _check("reasoning", reasoning_type, custom_weights)
    words = word_count(text)
    short = len(text.strip()) < _SHORTEST
    exact = dict.fromkeys(WEIGHTS, 0.0) if short else _metrics(text.lower(), words, reasoning_type)
    overall = _overall(exact, custom_weights)
    certain = 0.6 * min(words / _ENOUGH_WORDS, 1) + 0.4 * overall / 100
    metrics = {name: round(value, 1) for name, value in exact.items()}
    return ReasoningReport(
        reasoning_type=reasoning_type,
        metrics=metrics,
        overall_score=round(overall, 1),
        confidence_score=0.0 if short else round(certain * 100, 1),
        word_count=words,
        recommendations=tuple(_ADVICE[name] for name in metrics if metrics[name] < _ENOUGH),
        indicators={word: word.lower() in text.lower() for word in expected_indicators or ()},
    )


def _overall(metrics: Mapping[str, float], custom_weights: Mapping[str, float] | None) -> float:
    weights = {**WEIGHTS, **(custom_weights or {})}
    overall = 0.0
    for name, value in metrics.items():  # not `sum`: its last bit, and so a tie, is another's
        overall += value * weights[name]
    return overall / sum(weights.values()) if custom_weights else overall


def _metrics(text: str, words: int, kind: str) -> dict[str, float]:
    metrics = {
        name: min(points * _distinct(text, indicators), 100.0)
        for name, (points, indicators) in _INDICATORS.items()
    }
    metrics["comprehensive_coverage"] = min(words / 50, 100.0)
    metrics["reasoning_pattern"] = _pattern(text, kind)
    return metrics


def _pattern(text: str, kind: str) -> float:
    if kind not in _PATTERNS:
        return _NO_PATTERN
    words, sequences = _PATTERNS[kind]
    lines = text.split("\n")
    complete = sum(any(_in_order(line, parts) for line in lines) for parts in sequences)
    return min(_WORD_POINTS * _distinct(text, words) + _SEQUENCE_POINTS * complete, 100.0)


def _in_order(line: str, parts: Sequence[str]) -> bool:
    """Whether *line* contains all *parts* in order, at least one character apart.

    One search per part keeps the time linear in the line, whatever a model writes.
    """
    begin = 0
    for part in parts:
        match = re.compile(part).search(line, begin) if begin <= len(line) else None
        if match is None:
            return False
        begin = match.end() + 1
    return True


def _distinct(text: str, indicators: Collection[str]) -> int:
    return sum(indicator in text for indicator in indicators)


def _check(where: str, kind: str | None, weights: Mapping[str, float] | None) -> None:
    if kind is not None and kind not in TYPES:
        raise UsageError(f"{where}: no reasoning type {kind!r}; {did_you_mean(kind, TYPES)}")
    if weights is None:
        return
    for name, weight in weights.items():
        if name not in WEIGHTS:
            raise UsageError(f"{where}: no metric {name!r} to weigh; {did_you_mean(name, WEIGHTS)}")
        if not math.isfinite(weight) or weight < 0:
            raise UsageError(f"{where}: the weight of {name!r} is {weight}; use 0 or more")
    if not any({**WEIGHTS, **weights}.values()):
        raise UsageError(f"{where}: every weight is 0; give one metric a weight")
