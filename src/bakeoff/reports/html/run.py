"""A run as one HTML file: headline, figures, tasks, trials, settings."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from bakeoff.core.candidate import Candidate, Limits, ModelSpec
from bakeoff.core.run_spec import Manifest
from bakeoff.core.values import Json
from bakeoff.reports.html.figures import figures
from bakeoff.reports.html.page import (
    Tile,
    header,
    listed,
    named,
    notes,
    page,
    quiet,
    remarks,
    tiles,
)
from bakeoff.reports.html.text import clipped, esc
from bakeoff.reports.html.trials import grid, select, trials
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.decision import answer
from bakeoff.reports.wording.findings import Findings
from bakeoff.reports.wording.phrases import conservation, counted, moment

_MOST_CANDIDATES = 100
_LONGEST = 2_000
_METHOD = """\
The unit is the task: a score is the mean of task means, and its interval comes from the spread between \
tasks, for other tasks like these. Candidates are compared on the tasks they share; p is that of the named \
test, adjusted after Holm for the number of pairs. What broke is missing, not a zero: coverage says how much \
of what could be scored was, and each planned trial is in exactly one bucket."""
_ADAPTIVE = """\
 The run was to end once its candidates were separated; its intervals and p-values hold at every interim look, and \
what was not needed was never run."""


def top(findings: Findings) -> Iterator[str]:
    """Yield the top of the page: headline, tiles and notes."""
    headline = answer(findings.summary)
    kind = "decided" if headline.decided else "open"
    so_far = "So far: " if findings.standing else ""
    yield (
        f'<section class="card answer {kind}" aria-label="The answer">'
        f"<p>{esc(so_far + headline.text)}</p><small>{esc(headline.why)}</small></section>"
    )
    yield notes([findings.standing] if findings.standing else [])
    yield tiles(_figures(findings))
    yield f'<p class="quiet below">{esc(conservation(findings.summary.buckets))}</p>'
    warnings = findings.summary.warnings
    yield remarks([note for note in findings.summary.notes if note not in warnings])
    yield notes(warnings)


def _figures(findings: Findings) -> Iterator[Tile]:
    summary, buckets = findings.summary, findings.summary.buckets
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


def settings(findings: Findings) -> Iterator[str]:
    """Yield the shared settings, the method and each candidate."""
    manifest = findings.manifest
    shared = listed(_equal_for_all(manifest), mono=("Plan", "Command"))
    method = _METHOD + (_ADAPTIVE if manifest.adaptive else "")
    yield (
        '<h2>How it was measured</h2><div class="two">'
        f'<div class="card about"><h3>Settings</h3>{shared}</div>'
        f'<div class="card method"><h3>Method</h3><p>{esc(method)}</p></div></div>'
    )
    for candidate in manifest.candidates[:_MOST_CANDIDATES]:
        yield _candidate(candidate, manifest.served)
    if (more := len(manifest.candidates) - _MOST_CANDIDATES) > 0:
        yield quiet(f"{phrases.counted(more, 'candidate')} more in manifest.json")


def _equal_for_all(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "Started", phrases.moment(manifest.created_at)
    yield "Bakeoff", manifest.bakeoff
    yield "Python", manifest.python
    yield "Platform", manifest.platform
    yield "Sources", ", ".join(source.path for source in manifest.sources)
    yield "Command", shlex.join(["bakeoff", *manifest.command]) if manifest.command else ""
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


def _candidate(candidate: Candidate, served: Mapping[str, Json]) -> str:
    model, agent = candidate.model, candidate.agent
    facts = listed(
        [
            ("Model", model.full_name),
            ("Address", _address(model)),
            ("Parameters", _plain(model.parameters)),
            ("Settings", _plain(model.settings)),
            ("Agent", f"{agent.name} {agent.version or ''}".strip()),
            ("Agent settings", _plain(agent.settings)),
            ("Served", _plain(served.get(model.full_name))),
        ]
    )
    return (
        f'<details class="card model"><summary><h3>{named(candidate.id)}</h3></summary>'
        f'<div class="inside">{facts}</div></details>'
    )


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


def render(findings: Findings) -> Iterator[str]:
    """Yield the page in parts; at most one task is in memory at a time."""
    name = findings.manifest.name or findings.called
    return page(f"{name}: {findings.called}", _body(findings, name))


def _body(findings: Findings, name: str) -> Iterator[str]:
    yield header("Run", findings.called, name, _facts(findings))
    yield from top(findings)
    yield from figures(findings.summary)
    shown = select(findings)
    if not findings.with_text:
        shown = replace(shown, detailed=())
    if len(findings.candidates) > 1 or len(shown.rows) > len(shown.detailed):
        yield from grid(findings, shown)
    if findings.with_text:
        yield from trials(findings, shown)
    yield from settings(findings)
    yield (
        f"<footer>Made by Bakeoff {esc(findings.manifest.bakeoff)} from the ledger of the run, "
        f"{esc(moment(findings.made_at))}; <code>{esc(findings.command('show'))}</code> prints any "
        "trial.</footer>"
    )


def _facts(findings: Findings) -> Iterator[str]:
    summary, manifest = findings.summary, findings.manifest
    yield f"{counted(summary.tasks, 'task')} × {counted(summary.rollouts, 'rollout')}"
    agents = dict.fromkeys(c.agent.label or c.agent.name for c in manifest.candidates)
    if len(agents) == 1:
        yield f"agent {next(iter(agents))}"
    if any(task.workspace is not None for task in findings.tasks):
        yield f"sandbox {manifest.sandbox.name}" if manifest.sandbox.name else "no sandbox"
    for role, model in manifest.conditions.roles.items():
        yield f"{role} {model.full_name}"
    if manifest.adaptive is not None:
        yield "adaptive"
    yield moment(manifest.created_at)
