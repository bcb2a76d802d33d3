"""A run as Markdown, to paste into a pull request or a note."""

import re
from collections.abc import Iterable, Iterator, Sequence

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.reports.wording import decision, phrases
from bakeoff.reports.wording import phrases as summary_words
from bakeoff.reports.wording.decision import answer
from bakeoff.reports.wording.findings import Findings
from bakeoff.stats.classification import Classification
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.summary import CandidateSummary, Group, Summary

_BACKTICKS = re.compile(r"`{3,}")
_MARKUP = re.compile(r"([\\`*\[\]<>|])")  # an underscore within a word is only itself
_BAR = 20
_MOST_PAIRS = 20
_MOST_GROUPS = 100
_WIDE = 500
_SCORE = ("score", "95 %", "coverage", "faults")


def cell(text: object, *, width: int = 200) -> str:
    """Return *text* as a table cell with all markup escaped."""
    return _MARKUP.sub(r"\\\1", one_line(str(text), width=width))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; its cells must be escaped already."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join('---' for _ in head)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def fenced(text: str, language: str = "") -> list[str]:
    """Return *text* in a code block whose fence does not occur in the text."""
    longest = max((len(ticks) for ticks in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return [f"{fence}{language}", for_terminal(text).rstrip("\n"), fence]


def bar(share: float | None) -> str:
    """Return a share of one as a bar, with its figure."""
    if share is None:
        return "no score"
    full = round(share * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {share:.1%}"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number that may be unknown."""
    return "–" if value is None else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Return a count that may be unknown."""
    return "?" if value is None else f"{value:,}"


def pairs_section(pairwise: Pairwise) -> Iterator[str]:
    """Yield the section with the pairwise differences."""
    shown = decision.worth_showing(pairwise, most=_MOST_PAIRS)
    if shown:
        yield "## Differences"
        yield ""
        yield from table(
            ("A", "B", "A − B", "95 %", "by chance", "smallest gap", "verdict"), map(_pair, shown)
        )
        yield ""
    yield from (f"- {cell(line, width=_WIDE)}" for line in decision.remarks(pairwise, shown))
    yield ""


def _pair(pair: Pair) -> list[str]:
    return [
        cell(pair.first),
        cell(pair.second),
        phrases.difference(pair.difference),
        phrases.interval(pair.interval, phrases.difference),
        cell(phrases.p_value(pair.p_holm)),
        phrases.score(pair.detectable),
        cell(decision.in_short(pair)),
    ]


def render(findings: Findings) -> Iterator[str]:
    """Yield the page line by line."""
    return (f"{line}\n" for line in _lines(findings))


def _lines(findings: Findings) -> Iterator[str]:
    summary, headline = findings.summary, answer(findings.summary)
    yield f"# {cell(findings.manifest.name or findings.called)}"
    yield ""
    if findings.standing:
        yield f"> {cell(findings.standing, width=_WIDE)}"
        yield ""
    yield f"**{cell(headline.text, width=_WIDE)}** {cell(headline.why, width=_WIDE)}"
    yield ""
    yield from _scores(summary)
    if summary.pairwise is not None:
        yield from pairs_section(summary.pairwise)
    if summary.main_effects:
        yield from ("## Main effects", "")
        effects = decision.effects_in_words(summary)
        yield from (f"- {cell(line, width=_WIDE)}" for line in effects)
        yield ""
    for classification in summary.classification[:_MOST_GROUPS]:
        yield from _classification(classification)
    if any(len(candidate.total.passes) > 1 for candidate in summary.candidates):
        yield from _passes(summary_words.in_order(summary), summary.pass_rule)
    if any(len(candidate.categories) > 1 for candidate in summary.candidates):
        yield from _categories(summary_words.in_order(summary))
    yield from _speed(summary_words.in_order(summary))
    notes = (*summary_words.shared_reasons(summary), *summary.notes)
    yield from _listed([summary_words.conservation(summary.buckets), *notes])


def _classification(classification: Classification) -> Iterator[str]:
    yield f"## Labels of {cell(classification.candidate)}"
    yield ""
    figures = ", ".join(f"{name} {text}" for name, text in phrases.classified(classification))
    yield from (cell(figures, width=_WIDE), "")
    yield from table(
        (
            "expected",
            "trials",
            "precision",
            "recall",
            "F1",
            "given:",
            *map(cell, classification.labels),
            phrases.NO_LABEL,
        ),
        (
            [
                cell(of.label),
                f"{of.trials:,}",
                *map(phrases.measured, (of.precision, of.recall, of.f1)),
                "",
                *(f"{count:,}" for count in row),
            ]
            for of, row in zip(classification.by_label, classification.confusion, strict=True)
        ),
    )
    yield ""
    yield from (f"- {line}" for line in phrases.CLASSIFICATION_NOTES)
    yield ""


def _listed(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"- {cell(line, width=_WIDE)}" for line in lines)
    yield ""


def _score(group: Group) -> list[str]:
    score = group.score
    return [
        phrases.score(score.mean),
        phrases.interval(score.interval),
        phrases.share(group.coverage),
        f"{group.buckets.faults:,}",
    ]


def _name(candidate: CandidateSummary) -> str:
    return cell(candidate.candidate) + (" (scripted)" if candidate.scripted else "")


def _scores(summary: Summary) -> Iterator[str]:
    rows = (
        [_name(candidate), *_score(candidate.total)]
        for candidate in summary_words.in_order(summary)
    )
    yield from table(("candidate", *_SCORE), rows)
    yield ""
    for line in summary_words.order(summary):
        yield phrases.sentence(line)
        yield ""


def _passes(candidates: Sequence[CandidateSummary], rule: str) -> Iterator[str]:
    yield "## pass@k / pass^k"
    yield ""
    if rule:
        yield phrases.sentence(rule)
        yield ""
    ks = sorted({rate.k for candidate in candidates for rate in candidate.total.passes})
    rows = []
    for candidate in candidates:
        rates = {rate.k: rate for rate in candidate.total.passes}
        known = (rates.get(k) for k in ks)
        cells = (
            f"{phrases.score(r.pass_at)} / {phrases.score(r.pass_hat)}" if r else phrases.UNKNOWN
            for r in known
        )
        rows.append([_name(candidate), *cells])
    yield from table(("candidate", *(f"k = {k}" for k in ks)), rows)
    yield ""


def _categories(candidates: Sequence[CandidateSummary]) -> Iterator[str]:
    groups = [
        (g.category or "", candidate, g) for candidate in candidates for g in candidate.categories
    ]
    yield "## By category"
    yield ""
    rows = (
        [cell(name), _name(candidate), f"{group.score.tasks:,}", *_score(group)]
        for name, candidate, group in sorted(groups, key=lambda group: group[0])[:_MOST_GROUPS]
    )
    yield from table(("category", "candidate", "tasks", *_SCORE), rows)
    yield ""


def _speed(candidates: Sequence[CandidateSummary]) -> Iterator[str]:
    yield "## Time, tokens and cost"
    yield ""
    rows = (
        [
            _name(candidate),
            phrases.seconds(candidate.total.latency.p50_s),
            phrases.seconds(candidate.total.latency.p95_s),
            phrases.number(candidate.total.tokens.input),
            phrases.number(candidate.total.tokens.output),
            phrases.dollars(candidate.total.tokens.cost_usd),
        ]
        for candidate in candidates
    )
    head = ("candidate", "latency p50", "p95", "tokens in", "tokens out", "cost")
    yield from table(head, rows)
    yield ""
