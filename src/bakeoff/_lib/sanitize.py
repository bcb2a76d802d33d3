"""Sanitize untrusted text: one function for each kind of output."""

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def well_formed(text: str) -> str:
    """Return *text* with lone surrogates replaced, so that it can be encoded as UTF-8."""
    if text.isascii():
        return text
    return _LONE_SURROGATE.sub("\ufffd", text)


def for_terminal(text: str) -> str:
    """Return *text* without what a terminal would obey (escapes, controls, separators, direction marks)."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", well_formed(text).replace("\r\n", "\n"))


def one_line(text: str, *, width: int = 160) -> str:
    """Return *text* as one short line for a terminal or a log."""
    line = " ".join(for_terminal(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"
