"""What every page is made of: its frame, tiles, notes, tables, lists and parts to open.

A page is one file: no script, no request to anywhere, and all foreign text as text. Whoever gives
these blocks a text gives it as it is; whoever gives them HTML says so in the name.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bakeoff._lib.untrusted import one_line
from bakeoff.reports.html_style import STYLE
from bakeoff.reports.html_text import esc


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
    """Return what the page may load: its own style sheet, and nothing else at all."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def header(kind: str, name: str, title: str, facts: Iterable[str]) -> str:
    """Return the head of a page: what it is, of which run, and what was equal for everybody."""
    items = "".join(f"<li>{esc(fact)}</li>" for fact in facts if fact)
    return (
        f'<header><div class="eyebrow"><span>{esc(kind)}</span> · {esc(name)}</div>'
        f'<h1>{esc(title)}</h1><ul class="facts">{items}</ul></header>'
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure in large print; `kind` is its colour: good, bad or neither."""

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


def notes(told: Iterable[str]) -> str:
    """Return what a reader should know before the figures, a line for each."""
    items = "".join(f"<li>{esc(note)}</li>" for note in told)
    return f'<ul class="notes">{items}</ul>' if items else ""


def named(name: str, *, width: int = 120) -> str:
    """Return a name that somebody else chose, on one line."""
    return esc(one_line(name, width=width))


def quiet(text: str) -> str:
    """Return a remark in small print."""
    return f'<p class="quiet">{esc(text)}</p>'


def remarks(lines: Iterable[str]) -> str:
    """Return what explains the figures above it, in small print, a line for each."""
    shown = "".join(quiet(line) for line in lines if line)
    return f'<div class="remarks">{shown}</div>' if shown else ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its head; on a phone, where a row is a card, the head stands at each cell.

    `kind` says what is in it: figures, or words (`left`), or a drawing (`wide`).
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
    """Return names and what they are; what is empty is left out, what is *mono* is no prose."""
    items = "".join(
        f"<dt>{esc(name)}</dt><dd{' class=mono' if name in mono else ''}>{esc(told)}</dd>"
        for name, told in pairs
        if told
    )
    return f"<dl>{items}</dl>"


def opening(title: str, inside_html: str, *, is_open: bool = False) -> str:
    """Return a part that opens."""
    shown = " open" if is_open else ""
    return f"<details{shown}><summary>{esc(title)}</summary>{inside_html}</details>"
