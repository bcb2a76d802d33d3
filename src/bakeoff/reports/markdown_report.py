"""A run as Markdown: the answer and the tables, to paste into a pull request or a note."""

from collections.abc import Iterator, Sequence

from bakeoff.reports import in_words, summary_words
from bakeoff.reports.answer import answer
from bakeoff.reports.findings import Findings
from bakeoff.reports.markdown_pairs import pairs_section
from bakeoff.reports.markdown_text import cell, table
from bakeoff.stats.summary import CandidateSummary, Group, Summary

_MOST_GROUPS = 100
_WIDE = 500


def render(findings: Findings) -> Iterator[str]:
    """Yield the page line by line."""
    return (f"{line}\n" for line in _lines(findings))


def _lines(findings: Findings) -> Iterator[str]:
    summary, found = findings.summary, answer(findings.summary)
    yield f"# {cell(findings.manifest.name or findings.called)}"
    yield ""
    if findings.standing:
        yield f"> {cell(findings.standing, width=_WIDE)}"
        yield ""
    yield f"**{cell(found.told, width=_WIDE)}** {cell(found.why, width=_WIDE)}"
    yield ""
    yield from _scores(summary)
    if summary.pairwise is not None:
        yield from pairs_section(summary.pairwise)
    if any(len(one.total.passes) > 1 for one in summary.candidates):
        yield from _passes(summary_words.in_order(summary), summary.pass_rule)
    if any(len(one.categories) > 1 for one in summary.candidates):
        yield from _categories(summary_words.in_order(summary))
    yield from _speed(summary_words.in_order(summary))
    told = (*summary_words.shared_reasons(summary), *summary.notes)
    yield from _listed([summary_words.conservation(summary.buckets), *told])


def _listed(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"- {cell(line, width=_WIDE)}" for line in lines)
    yield ""


_SCORE = ("score", "95 %", "coverage", "faults")


def _score(group: Group) -> list[str]:
    score = group.score
    return [
        in_words.score(score.mean),
        in_words.interval(score.interval),
        in_words.share(group.coverage),
        f"{group.buckets.faults:,}",
    ]


def _name(one: CandidateSummary) -> str:
    return cell(one.candidate) + (" (scripted)" if one.scripted else "")


def _scores(summary: Summary) -> Iterator[str]:
    rows = ([_name(one), *_score(one.total)] for one in summary_words.in_order(summary))
    yield from table(("candidate", *_SCORE), rows)
    yield ""
    for line in summary_words.order(summary):
        yield in_words.sentence(line)
        yield ""


def _passes(candidates: Sequence[CandidateSummary], rule: str) -> Iterator[str]:
    yield "## pass@k / pass^k"
    yield ""
    if rule:
        yield in_words.sentence(rule)
        yield ""
    ks = sorted({rate.k for one in candidates for rate in one.total.passes})
    rows = []
    for one in candidates:
        rates = {rate.k: rate for rate in one.total.passes}
        known = (rates.get(k) for k in ks)
        told = (
            f"{in_words.score(r.pass_at)} / {in_words.score(r.pass_hat)}" if r else in_words.UNKNOWN
            for r in known
        )
        rows.append([_name(one), *told])
    yield from table(("candidate", *(f"k = {k}" for k in ks)), rows)
    yield ""


def _categories(candidates: Sequence[CandidateSummary]) -> Iterator[str]:
    groups = [(g.category or "", one, g) for one in candidates for g in one.categories]
    yield "## By category"
    yield ""
    rows = (
        [cell(name), _name(one), f"{group.score.tasks:,}", *_score(group)]
        for name, one, group in sorted(groups, key=lambda group: group[0])[:_MOST_GROUPS]
    )
    yield from table(("category", "candidate", "tasks", *_SCORE), rows)
    yield ""


def _speed(candidates: Sequence[CandidateSummary]) -> Iterator[str]:
    yield "## Time, tokens and cost"
    yield ""
    rows = (
        [
            _name(one),
            in_words.seconds(one.total.latency.p50_s),
            in_words.seconds(one.total.latency.p95_s),
            in_words.number(one.total.tokens.input),
            in_words.number(one.total.tokens.output),
            in_words.dollars(one.total.tokens.cost_usd),
        ]
        for one in candidates
    )
    head = ("candidate", "latency p50", "p95", "tokens in", "tokens out", "cost")
    yield from table(head, rows)
    yield ""
