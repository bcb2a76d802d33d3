"""The building blocks of every page: frame, tiles, notes, tables, lists and expandable sections.

A page is one file without scripts or external requests, and untrusted text is escaped. Parameters
take plain text unless their name ends in `_html`.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import positional_value_object
from bakeoff.reports.html.text import esc

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #e3e6eb; --soft: #eef0f4;
  --text: #1a1f29; --quiet: #5c6675; --accent: #3458d4; --accent-soft: #e6ebfb;
  --good: #137a4b; --good-soft: #e0f3e9; --bad: #b3261e; --bad-soft: #fbe6e4;
  --warn: #8a5a00; --warn-soft: #fdf1d8; --neutral: #5c6675; --neutral-soft: #eceff3;
  --gold: #c99700; --silver: #8a94a3; --bronze: #a9683a;
  --bar: #5b7be6; --bar-good: #2f9e6b; --bar-bad: #c9ced8; --whisker: #1a1f29;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10131a; --card: #181c25; --line: #2a303c; --soft: #212734;
    --text: #e6e9ef; --quiet: #98a2b3; --accent: #8fa8ff; --accent-soft: #222c4d;
    --good: #5fd39b; --good-soft: #143325; --bad: #ff8f86; --bad-soft: #3a1c1b;
    --warn: #f0bd5b; --warn-soft: #372a10; --neutral: #a8b1c0; --neutral-soft: #262c38;
    --gold: #e3b93c; --silver: #aab4c3; --bronze: #cd8d5d;
    --bar: #6f8df0; --bar-good: #3fb57f; --bar-bad: #454d5c; --whisker: #e6e9ef;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
header { margin-bottom: 24px; }
h1 { font-size: 28px; line-height: 1.2; margin: 2px 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
h3 { font-size: 15px; margin: 0; }
h4 { font-size: 13px; margin: 18px 0 6px; color: var(--quiet); font-weight: 600; }
p { margin: 0 0 8px; }
.eyebrow {
  font-size: 12px; color: var(--quiet); overflow-wrap: anywhere;
}
.eyebrow span { letter-spacing: .08em; text-transform: uppercase; }
a { color: inherit; text-decoration: none; }
a:hover, a:focus-visible { color: var(--accent); text-decoration: underline; }
.below { margin-top: 10px; }
.quiet { color: var(--quiet); font-size: 13px; overflow-wrap: anywhere; }
.remarks { margin-top: 8px; } .remarks p { margin: 0 0 2px; }
.facts { display: flex; flex-wrap: wrap; gap: 6px 8px; padding: 0; margin: 0; list-style: none; }
.facts li {
  background: var(--soft); border-radius: 6px; padding: 2px 8px; font-size: 13px;
  color: var(--quiet); overflow-wrap: anywhere;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; }
.tile, .card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
}
.tile { padding: 14px 16px; }
.tile b { display: block; white-space: nowrap; font-size: 26px; line-height: 1.15; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: 13px; }
.tile.good b { color: var(--good); } .tile.bad b { color: var(--bad); }
.notes { list-style: none; margin: 16px 0 0; padding: 0; display: grid; gap: 8px; }
.notes li {
  border-left: 3px solid var(--warn); background: var(--warn-soft); border-radius: 0 6px 6px 0;
  padding: 8px 12px; font-size: 14px; overflow-wrap: anywhere;
}
.answer { padding: 16px 18px; margin-bottom: 14px; border-left: 4px solid var(--neutral); }
.answer.decided { border-left-color: var(--good); }
.answer p { font-size: 20px; line-height: 1.35; font-weight: 600; margin: 0 0 4px; overflow-wrap: anywhere; }
.answer small { color: var(--quiet); font-size: 14px; }
.answer + .notes { margin: 0 0 14px; }
.podiums { display: grid; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); gap: 12px; }
@media (min-width: 641px) { .podiums.four { grid-template-columns: 1fr 1fr; } }
.podium { padding: 14px 16px; display: flex; flex-direction: column; }
.podium > p { margin: 0 0 10px; }
.podium ol { list-style: none; margin: 0; padding: 0; }
.podium li {
  display: grid; grid-template-columns: 26px minmax(0, 1fr) auto; gap: 2px 10px;
  align-items: center; padding: 6px 0; border-top: 1px solid var(--line);
}
.podium li:first-child { border-top: 0; }
.podium .name { overflow-wrap: anywhere; }
.podium .figure { font-variant-numeric: tabular-nums; font-weight: 600; text-align: right; }
.podium .range { grid-column: 2 / -1; color: var(--quiet); font-size: 12px; }
.podium .why { margin: auto 0 0; padding-top: 10px; font-size: 12px; color: var(--quiet); }
.medal {
  width: 24px; height: 24px; border-radius: 50%; display: grid; place-items: center;
  font-size: 12px; font-weight: 700; color: var(--quiet); border: 1px solid var(--line);
}
.medal.m1 { background: var(--gold); border-color: var(--gold); color: #1a1400; }
.medal.m2 { background: var(--silver); border-color: var(--silver); color: #10131a; }
.medal.m3 { background: var(--bronze); border-color: var(--bronze); color: #fff; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 10px 12px; text-align: right; white-space: nowrap; }
th { color: var(--quiet); font-size: 12px; font-weight: 600; border-bottom: 1px solid var(--line); }
td { border-top: 1px solid var(--line); }
tbody tr:first-child td { border-top: 0; }
th:first-child, td:first-child, th.left, td.left { text-align: left; }
td:first-child { white-space: normal; overflow-wrap: anywhere; font-weight: 600; min-width: 160px; }
td small { display: block; color: var(--quiet); font-weight: 400; font-size: 12px; }
td small.reason { max-width: 28ch; white-space: normal; overflow-wrap: anywhere; }
td.wide { width: 24%; min-width: 120px; } td.wide svg { display: block; overflow: visible; }
td.words { white-space: normal; min-width: 130px; }
.axis { stroke: var(--line); } .zero { stroke: var(--quiet); stroke-dasharray: 3 2; }
.point { fill: var(--bar); stroke: var(--card); stroke-width: 1.5; }
.grid { max-height: min(720px, 80vh); overflow: auto; }
.grid th { position: sticky; top: 0; z-index: 1; background: var(--card); }
.grid th.cell { white-space: normal; overflow-wrap: anywhere; max-width: 220px; min-width: 72px; }
.grid th, .grid td { padding: 4px 10px; }
.grid td:first-child { font-weight: 400; }
.grid td:first-child, .grid th:first-child { position: sticky; left: 0; background: var(--card); }
.grid th:first-child { z-index: 2; }
.mark {
  display: inline-block; min-width: 56px; padding: 1px 8px; border-radius: 5px; font-size: 13px;
  text-align: center; white-space: nowrap; font-variant-numeric: tabular-nums;
}
.mark small, td .mark small { display: inline; color: inherit; opacity: .8; font-size: 11px; }
.mark.all { background: var(--good-soft); color: var(--good); font-weight: 600; }
.mark.most { background: var(--accent-soft); color: var(--accent); }
.mark.some { background: var(--warn-soft); color: var(--warn); }
.mark.zero { background: var(--bad-soft); color: var(--bad); }
.mark.broken { background: none; color: var(--bad); box-shadow: inset 0 0 0 1px var(--bad); }
.mark.none { background: var(--neutral-soft); color: var(--neutral); }
.chip {
  display: inline-block; border-radius: 999px; padding: 1px 10px; font-size: 12px;
  font-weight: 600; white-space: nowrap;
}
.chip.success { background: var(--good-soft); color: var(--good); }
.chip.failed, .chip.error { background: var(--bad-soft); color: var(--bad); }
.chip.timed-out, .chip.success-at-limit { background: var(--warn-soft); color: var(--warn); }
.chip.mixed { background: var(--accent-soft); color: var(--accent); }
.chip.unchecked, .chip.cancelled, .chip.not-run { background: var(--neutral-soft); color: var(--neutral); }
.plus { color: var(--good); } .minus { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 12px; }
.chart {
  margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px;
}
@media (min-width: 700px) { .charts.four { grid-template-columns: 1fr 1fr; } }
@media (min-width: 1000px) { .charts.five .chart:first-child { grid-column: span 2; } }
.chart figcaption { display: flex; flex-wrap: wrap; gap: 0 8px; margin-bottom: 8px; }
.chart figcaption span { color: var(--quiet); font-size: 13px; }
.chart svg { display: block; overflow: visible; }
.chart text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.label { fill: var(--text); } .value { fill: var(--quiet); font-variant-numeric: tabular-nums; }
.track { fill: var(--soft); } .bar { fill: var(--bar); }
.bar.success { fill: var(--bar-good); } .bar.unsolved { fill: var(--bar-bad); }
.dot { fill: var(--card); stroke: var(--whisker); stroke-width: 1; }
.whisker { stroke: var(--whisker); stroke-width: 1.5; }
details.model { margin-bottom: 10px; }
details.trial { margin-bottom: 6px; } details.model.trial > summary { padding: 8px 14px; }
.two + details.model { margin-top: 12px; }
details.model > summary {
  display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; padding: 12px 16px;
  cursor: pointer; list-style: none;
}
details.model > summary::-webkit-details-marker { display: none; }
details.model > summary::before {
  content: ""; border: solid var(--quiet); border-width: 0 2px 2px 0; padding: 3px;
  transform: rotate(-45deg); transition: transform .1s;
}
details.model[open] > summary::before { transform: rotate(45deg); }
summary h3 { overflow-wrap: anywhere; min-width: 0; }
summary .quiet { margin-left: auto; font-variant-numeric: tabular-nums; }
.inside { scroll-margin-top: 60px; padding: 0 16px 16px; border-top: 1px solid var(--line); min-width: 0; }
.rollout { margin-top: 14px; }
details.rollout { border-top: 1px solid var(--line); padding-top: 10px; margin-top: 10px; }
.inside details.rollout > summary { color: var(--text); font-weight: 600; }
.rollout > summary small { font-weight: 400; color: var(--quiet); }
.rollout > summary .quiet { font-weight: 400; margin-left: 4px; }
.inside details { margin-top: 10px; }
.inside details > summary { cursor: pointer; color: var(--accent); font-size: 14px; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 16px; margin: 12px 0 0; }
dt { color: var(--quiet); font-size: 13px; } dd { margin: 0; font-size: 14px; overflow-wrap: anywhere; }
dd.mono { font-family: var(--mono); font-size: 12px; }
.fault {
  background: var(--bad-soft); color: var(--bad); border-radius: 6px; padding: 8px 12px;
  margin: 10px 0 0; font-size: 14px; overflow-wrap: anywhere; white-space: pre-wrap;
}
pre {
  font: 12px/1.55 var(--mono); margin: 8px 0 0; padding: 10px 12px; background: var(--soft);
  border-radius: 6px; overflow: auto; max-height: 460px; tab-size: 4; unicode-bidi: isolate;
}
pre.code { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.diff span { display: inline-block; min-width: 100%; }
pre .file { color: var(--accent); font-weight: 700; } pre .meta { color: var(--quiet); }
pre .hunk { color: var(--accent); background: var(--accent-soft); }
pre .add { color: var(--good); background: var(--good-soft); }
pre .del { color: var(--bad); background: var(--bad-soft); }
.talk { display: grid; gap: 10px; margin-top: 10px; }
.turn { border-left: 3px solid var(--line); padding-left: 12px; min-width: 0; }
.turn.assistant { border-color: var(--accent); } .turn.tool { border-color: var(--silver); }
.turn.user { border-color: var(--gold); }
.role { font-size: 12px; color: var(--quiet); font-weight: 600; }
.turn pre { margin-top: 4px; } .reasoning pre { opacity: .75; font-style: italic; }
.call b { font: 700 12px var(--mono); }
.about { padding: 14px 16px; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 12px; }
.method { padding: 14px 16px; font-size: 14px; color: var(--quiet); }
.method h3 { color: var(--text); margin-bottom: 6px; }
footer { margin-top: 40px; color: var(--quiet); font-size: 13px; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  main { padding: 20px 14px 48px; }
  h1 { font-size: 23px; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tile b { font-size: 21px; }
  thead { display: none; }
  table, tbody { display: block; width: 100%; }
  tr {
    display: grid; grid-template-columns: 1fr 1fr; padding: 12px 0 10px;
    border-top: 1px solid var(--line);
  }
  tbody tr:first-child { border-top: 0; }
  td, td.left {
    display: flex; justify-content: space-between; gap: 8px; border: 0; padding: 2px 14px;
    white-space: normal; text-align: right; font-size: 14px;
  }
  td:first-child, td.left { grid-column: 1 / -1; }
  td:first-child { display: block; text-align: left; font-size: 16px; }
  td.left { justify-content: flex-start; padding-bottom: 6px; }
  td.left::before { display: none; }
  td[data-name]::before { content: attr(data-name); color: var(--quiet); font-weight: 400; }
  td.wide { grid-column: 1 / -1; display: block; width: auto; padding: 6px 14px; }
  td.wide::before { display: none; }
  td.range { grid-column: 1 / -1; }
  .grid tr { padding: 6px 0; }
  .grid td { grid-column: 1 / -1; }
  .grid td:first-child { font-size: 14px; font-weight: 600; position: static; }
  .grid td[data-name]::before { overflow-wrap: anywhere; text-align: left; min-width: 0; }
  td small { display: inline; margin-left: 6px; }
  td .result { text-align: left; }
  td small.reason { display: block; margin-left: 0; max-width: none; }
  td:first-child small { display: block; margin: 0; }
  summary .quiet { margin-left: 0; width: 100%; }
}
@media print {
  :root { color-scheme: light; }
  .card, .tile, .chart { break-inside: avoid; }
  pre, .grid { max-height: none; }
}
"""


def page(title: str, body_html: Iterable[str]) -> Iterator[str]:
    """Yield a whole page, part by part."""
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">\n'
        f"<title>{esc(title)}</title>\n<style>{STYLE}</style></head>\n<body><main>"
    )
    yield from body_html
    yield "</main></body></html>\n"


def _policy() -> str:
    """Return the content security policy: the page may load only its own style sheet."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def header(kind: str, name: str, title: str, facts: Iterable[str]) -> str:
    """Return the header of a page: its kind, name, title and facts."""
    items = "".join(f"<li>{esc(fact)}</li>" for fact in facts if fact)
    return (
        f'<header><div class="eyebrow"><span>{esc(kind)}</span> · {esc(name)}</div>'
        f'<h1>{esc(title)}</h1><ul class="facts">{items}</ul></header>'
    )


@positional_value_object
class Tile:
    """One large figure; `kind` is its colour: good, bad or neither."""

    figure: str
    what: str
    kind: str = ""


def tiles(shown: Iterable[Tile]) -> str:
    """Return figures in a row."""
    items = "".join(
        f'<div class="tile {tile.kind}"><b>{esc(tile.figure)}</b><span>{esc(tile.what)}</span></div>'
        for tile in shown
    )
    return f'<section class="tiles" aria-label="Summary">{items}</section>'


def notes(lines: Iterable[str]) -> str:
    """Return notes as a list."""
    items = "".join(f"<li>{esc(note)}</li>" for note in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def named(name: str, *, width: int = 120) -> str:
    """Return an untrusted name, escaped and on one line."""
    return esc(one_line(name, width=width))


def quiet(text: str) -> str:
    """Return a remark in small print."""
    return f'<p class="quiet">{esc(text)}</p>'


def remarks(lines: Iterable[str]) -> str:
    """Return remarks on the figures above in small print, one per line."""
    shown = "".join(quiet(line) for line in lines if line)
    return f'<div class="remarks">{shown}</div>' if shown else ""


@positional_value_object
class Column:
    """A table column; on a phone, where a row is a card, its head is repeated in each cell.

    `kind` is its content: figures (empty), words (`partial_outcome`) or a drawing (`wide`).
    """

    head: str
    kind: str = ""


def table(columns: Sequence[Column], rows_html: Iterable[Sequence[str]]) -> str:
    """Return a table in a card; the first cell of a row is its name."""
    return "".join(framed(columns, (row(columns, cells) for cells in rows_html)))


def framed(columns: Sequence[Column], rows_html: Iterable[str], *, kind: str = "") -> Iterator[str]:
    """Yield a table in a card around *rows_html*, which may be many."""
    heads = "".join(f'<th scope="col"{_class(c.kind)}>{esc(c.head)}</th>' for c in columns)
    shape = _class(f"card table {kind}".strip())
    yield f'<div{shape} tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>'
    yield from rows_html
    yield "</tbody></table></div>"


def row(columns: Sequence[Column], cells_html: Sequence[str], *, kind: str = "") -> str:
    """Return one row of a table."""
    first, *others = cells_html
    shown = "".join(
        f'<td data-name="{esc(column.head)}"{_class(column.kind)}>{cell}</td>'
        for column, cell in zip(columns[1:], others, strict=True)
    )
    return f"<tr{_class(kind)}><td>{first}</td>{shown}</tr>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def listed(pairs: Iterable[tuple[str, str]], *, mono: Iterable[str] = ("Digest",)) -> str:
    """Return names and values, without empty values; names in *mono* are set in monospace."""
    items = "".join(
        f"<dt>{esc(name)}</dt><dd{' class=mono' if name in mono else ''}>{esc(value)}</dd>"
        for name, value in pairs
        if value
    )
    return f"<dl>{items}</dl>"


def opening(title: str, inside_html: str, *, is_open: bool = False) -> str:
    """Return an expandable section."""
    shown = " open" if is_open else ""
    return f"<details{shown}><summary>{esc(title)}</summary>{inside_html}</details>"
