"""A run as one HTML file: headline, figures, tasks, trials, settings."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from bakeoff._lib.value_object import positional_value_object, value_object
from bakeoff.core.candidate import Candidate, Limits, ModelSpec
from bakeoff.core.lazy_tasks import outlines_of
from bakeoff.core.run_spec import Manifest
from bakeoff.core.values import Json
from bakeoff.reports.html import charts
from bakeoff.reports.html.templates import pages
from bakeoff.reports.html.text import clipped
from bakeoff.reports.html.trials import grid, how_many, how_much, select, trials
from bakeoff.reports.wording import decision, phrases
from bakeoff.reports.wording.findings import Findings
from bakeoff.reports.wording.phrases import counted, moment
from bakeoff.stats.paired import Pair
from bakeoff.stats.summary import CandidateSummary, Group, Summary

_MOST_CANDIDATES = 100
_MOST_PAIRS = 45
_MOST_GROUPS = 300
_MOST_KS = 6
_MOST_REMARKS = 8
_LONGEST = 2_000
_NO_RATE = "A dash: some task has fewer than k rollouts with a score."
_METHOD = """\
The unit is the task: a score is the mean of task means, and its interval comes from the spread between \
tasks, for other tasks like these. Candidates are compared on the tasks they share; "by chance" is how often two \
that are equally good would differ as much, by the named test, and allows for the number of pairs. What broke is missing, not a zero: coverage says how much \
of what could be scored was, and each planned trial is in exactly one bucket."""
_ADAPTIVE = """\
 The run was to end once its candidates were separated; its intervals and verdicts hold although it was looked at all along, and \
what was not needed was never run."""


@positional_value_object
class Tile:
    """One large figure; `kind` is its colour: good, bad or neither."""

    figure: str
    what: str
    kind: str = ""


def render(findings: Findings) -> Iterator[str]:
    """Yield the page in parts; at most one task is in memory at a time."""
    shown = select(findings)
    if not findings.with_text:
        shown = replace(shown, detailed=())
    summary = findings.summary
    has_grid = len(findings.candidates) > 1 or len(shown.rows) > len(shown.detailed)
    return pages(
        "run.html",
        findings=findings,
        name=findings.manifest.name or findings.called,
        facts=tuple(_facts(findings)),
        tiles=tuple(tiles(summary)),
        tables=tables(summary),
        charts=charts.of_run(summary, pairs=_MOST_PAIRS),
        grid=grid(findings, shown) if has_grid else None,
        how_many=how_many(findings, shown),
        trials=trials(findings, shown) if findings.with_text else None,
        how_much=how_much(findings, shown),
        settings=tuple(shared_settings(findings.manifest)),
        method=_METHOD + (_ADAPTIVE if findings.manifest.adaptive else ""),
        candidates=described(findings.manifest),
        left_out=max(len(findings.manifest.candidates) - _MOST_CANDIDATES, 0),
    )


@value_object
class Tables:
    """What the tables of a run are made from."""

    candidates: tuple[CandidateSummary, ...]
    ranks: Mapping[str, str]
    reasons: tuple[str, ...]
    pairs: tuple[Pair, ...]
    remarks: tuple[str, ...]
    planned: bool
    ks: tuple[int, ...]
    ks_missing: str
    priced: bool
    several_categories: bool
    groups: tuple[tuple[CandidateSummary, Group], ...]
    groups_left: int
    averages: tuple[str, ...]


def tables(summary: Summary) -> Tables:
    """Return what the tables of a run show, within the limits of a page."""
    candidates = phrases.in_order(summary)
    placed = summary.pairwise.ranks if summary.pairwise else ()
    is_ranked = len(placed) > 2 and placed[0].best is not None
    ks = sorted({rate.k for candidate in candidates for rate in candidate.total.passes})
    pairs = decision.worth_showing(summary.pairwise, most=_MOST_PAIRS) if summary.pairwise else []
    groups = sorted(
        ((candidate, group) for candidate in candidates for group in candidate.categories),
        key=lambda pair: pair[1].category or "",
    )
    return Tables(
        candidates=tuple(candidates),
        ranks={p.candidate: phrases.rank_range(p.best, p.worst) for p in placed}
        if is_ranked
        else {},
        reasons=tuple(_reasons(summary)),
        pairs=tuple(pairs),
        remarks=tuple(decision.remarks(summary.pairwise, pairs, with_ranks=False))
        if summary.pairwise
        else (),
        planned=any(pair.detectable is not None for pair in pairs),
        # the first ones and the last; the others are in the JSON report
        ks=tuple(ks if len(ks) <= _MOST_KS else [*ks[: _MOST_KS - 1], ks[-1]]),
        ks_missing=_NO_RATE if any(_lacks_rates(c.total, ks) for c in candidates) else "",
        priced=any(
            (each := c.total.cost_per_success) is not None and each.value is not None
            for c in candidates
        ),
        several_categories=any(len(candidate.categories) > 1 for candidate in candidates),
        groups=tuple(groups[:_MOST_GROUPS]),
        groups_left=max(len(groups) - _MOST_GROUPS, 0),
        averages=tuple(islice(phrases.averages(summary), _MOST_REMARKS)),
    )


def _lacks_rates(group: Group, ks: Sequence[int]) -> bool:
    known = {rate.k for rate in group.passes if rate.pass_at is not None}
    return not known.issuperset(ks)


def _reasons(summary: Summary) -> Iterator[str]:
    reasons = list(phrases.shared_reasons(summary))
    yield phrases.sentence(summary.pass_rule)
    yield from map(phrases.sentence, phrases.order(summary))
    yield from reasons[:_MOST_REMARKS]
    if (more := len(reasons) - _MOST_REMARKS) > 0:
        yield f"{counted(more, 'more line')}: bakeoff summarize"


def tiles(summary: Summary) -> Iterator[Tile]:
    """Yield the large figures at the top of a run."""
    buckets = summary.buckets
    if len(summary.candidates) > 1:
        yield Tile(f"{len(summary.candidates):,}", "candidates")
    yield Tile(f"{summary.tasks:,}", "task" if summary.tasks == 1 else "tasks")
    yield Tile(f"{buckets.scored:,}", f"of {phrases.counted(buckets.planned, 'trial')} scored")
    if buckets.faults:
        yield Tile(f"{buckets.faults:,}", "faulted", "bad")
    if buckets.limited:
        yield Tile(f"{buckets.limited:,}", "stopped at a limit")
    if buckets.unchecked:
        yield Tile(f"{buckets.unchecked:,}", "unchecked")
    if buckets.not_needed:
        yield Tile(f"{buckets.not_needed:,}", "not needed", "good")
    if summary.billed.cost_usd is not None:
        yield Tile(phrases.dollars(summary.billed.cost_usd), "billed in total")


def described(manifest: Manifest) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Yield each candidate with its settings."""
    for candidate in manifest.candidates[:_MOST_CANDIDATES]:
        yield candidate.id, tuple(_candidate(candidate, manifest.served))


def shared_settings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield what holds for every candidate."""
    yield "Started", phrases.moment(manifest.created_at)
    yield "Bakeoff", manifest.bakeoff
    yield "Python", manifest.python
    yield "Platform", manifest.platform
    yield "Sources", ", ".join(source.path for source in manifest.sources)
    command = shlex.join(["bakeoff", *manifest.command]) if manifest.command else ""
    yield "Command", clipped(command, _LONGEST)
    if manifest.shard is not None:
        yield "Shard", f"{manifest.shard.name} of plan {manifest.shard.plan}"
    if manifest.merged:
        yield "Merged from", f"{counted(len(manifest.merged), 'run')}: {_plain(manifest.merged)}"
    yield "Selection", _plain(manifest.selection)
    yield "Sandbox", manifest.sandbox.name or ""
    yield "Limits", _limits(manifest.conditions.limits)
    yield "Attempts", str(manifest.conditions.attempts)
    for role, model in manifest.conditions.roles.items():
        yield role.capitalize(), model.full_name
    yield "Budget", _budget(manifest)
    if manifest.adaptive is not None:
        yield "Adaptive", _plain(msgspec.to_builtins(manifest.adaptive))
    yield "Plan", manifest.plan


def _limits(limits: Limits) -> str:
    values = {k: v for k, v in msgspec.to_builtins(limits).items() if v}
    for name in ("time_s", "scoring_s"):
        if name in values:
            values[name.removesuffix("_s")] = phrases.duration(values.pop(name))
    return _plain(values)


def _budget(manifest: Manifest) -> str:
    cap = manifest.cap
    caps = [phrases.dollars(cap.cost_usd)] if cap.cost_usd is not None else []
    caps += [f"{cap.tokens:,} tokens"] if cap.tokens is not None else []
    return ", ".join(caps)


def _candidate(candidate: Candidate, served: Mapping[str, Json]) -> Iterable[tuple[str, str]]:
    model, agent = candidate.model, candidate.agent
    yield "Model", model.full_name
    yield "Address", _address(model)
    yield "Parameters", _plain(model.parameters)
    yield "Settings", _plain(model.settings)
    yield "Prompt", _plain(candidate.prompt.text if candidate.prompt else None)
    yield "System prompt", _plain(candidate.prompt.system if candidate.prompt else None)
    yield "Agent", f"{agent.name} {agent.version or ''}".strip()
    yield "Agent settings", _plain(agent.settings)
    yield "Served", _plain(served.get(model.full_name))


def _address(model: ModelSpec) -> str:
    source = f" ({model.base_url_from})" if model.base_url and model.base_url_from else ""
    return f"{model.base_url or ''}{source}"


def _plain(value: Json) -> str:
    """Return settings as text: `temperature 0, seed 7`."""
    if isinstance(value, Mapping):
        text = ", ".join(
            f"{key} {_plain(inner)}" for key, inner in value.items() if inner is not None
        )
    elif isinstance(value, list | tuple):
        text = ", ".join(map(_plain, value))
    else:
        text = "" if value is None else str(value)
    return clipped(text, _LONGEST)


def _facts(findings: Findings) -> Iterator[str]:
    summary, manifest = findings.summary, findings.manifest
    yield f"{counted(summary.tasks, 'task')} × {counted(summary.rollouts, 'rollout')}"
    agents = dict.fromkeys(c.agent.label or c.agent.name for c in manifest.candidates)
    if len(agents) == 1:
        yield f"agent {next(iter(agents))}"
    if any(task.sample.workspace is not None for task in outlines_of(findings.tasks)):
        yield f"sandbox {manifest.sandbox.name}" if manifest.sandbox.name else "no sandbox"
    for role, model in manifest.conditions.roles.items():
        yield f"{role} {model.full_name}"
    if manifest.adaptive is not None:
        yield "adaptive"
    yield moment(manifest.created_at)
