"""The foot of the page of a run: with what it can be run again, and how the figures were got."""

import shlex
from collections.abc import Iterator, Mapping

import msgspec

from bakeoff.core.candidate import Candidate, Limits, ModelSpec
from bakeoff.core.manifest import Manifest
from bakeoff.core.values import Json
from bakeoff.reports import in_words
from bakeoff.reports.findings import Findings
from bakeoff.reports.html_page import listed, named, quiet
from bakeoff.reports.html_text import clipped, esc

_MOST_CANDIDATES = 100
_LONGEST = 2_000
_METHOD = """\
The unit is the task: a score is the mean of task means, and its interval comes from the spread between \
tasks, for other tasks like these. Candidates are compared on the tasks they share; p is that of the named \
test, adjusted after Holm for the number of pairs. What broke is missing, not a zero: coverage says how much \
of what could be scored was, and each planned trial is in exactly one bucket."""
_ADAPTIVE = """\
 The run was to end when its candidates were told apart; its intervals and p-values hold at every look, and \
what was not needed was never run."""


def settings(findings: Findings) -> Iterator[str]:
    """Yield what was the same for everybody, each candidate, and the method."""
    manifest = findings.manifest
    told = listed(_equal_for_all(manifest), mono=("Plan", "Command"))
    method = _METHOD + (_ADAPTIVE if manifest.adaptive else "")
    yield (
        '<h2>How it was measured</h2><div class="two">'
        f'<div class="card about"><h3>Settings</h3>{told}</div>'
        f'<div class="card method"><h3>Method</h3><p>{esc(method)}</p></div></div>'
    )
    for candidate in manifest.candidates[:_MOST_CANDIDATES]:
        yield _candidate(candidate, manifest.served)
    if (more := len(manifest.candidates) - _MOST_CANDIDATES) > 0:
        yield quiet(f"{in_words.counted(more, 'candidate')} more in manifest.json")


def _equal_for_all(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "Started", in_words.moment(manifest.created_at)
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
    told = {k: v for k, v in msgspec.to_builtins(limits).items() if v}
    for name in ("time_s", "scoring_s"):
        if name in told:
            told[name.removesuffix("_s")] = in_words.duration(told.pop(name))
    return _plain(told)


def _budget(manifest: Manifest) -> str:
    cap = manifest.cap
    told = [in_words.dollars(cap.cost_usd)] if cap.cost_usd is not None else []
    told += [f"{cap.tokens:,} tokens"] if cap.tokens is not None else []
    return ", ".join(told)


def _candidate(candidate: Candidate, served: Mapping[str, Json]) -> str:
    model, agent = candidate.model, candidate.agent
    told = listed(
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
        f'<div class="inside">{told}</div></details>'
    )


def _address(model: ModelSpec) -> str:
    said_by = f" ({model.base_url_from})" if model.base_url and model.base_url_from else ""
    return f"{model.base_url or ''}{said_by}"


def _plain(value: Json) -> str:
    """Return settings as a person would write them: `temperature 0, seed 7`."""
    if isinstance(value, Mapping):
        told = ", ".join(
            f"{key} {_plain(inner)}" for key, inner in value.items() if inner is not None
        )
    elif isinstance(value, list | tuple):
        told = ", ".join(map(_plain, value))
    else:
        told = "" if value is None else str(value)
    return clipped(told, _LONGEST)
