"""Text from outside, made harmless."""

import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bakeoff._lib.sanitize import for_terminal, one_line, well_formed

any_text = st.text(st.characters() | st.sampled_from("\x1b\x9b\x07\r\u202e\u2066\ud800[]31mJ"))


@settings(deadline=None)
@given(any_text)
@example("\x1b[2J\x1b]0;title\x07")
@example("\x9b31m")
@example("a\rb")
@example("\u202etxt.exe")
def test_nothing_a_terminal_obeys_is_left(text: str) -> None:
    shown = for_terminal(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"} for c in shown)
    assert all(
        unicodedata.bidirectional(c) not in {"LRE", "RLE", "LRO", "RLO", "PDF"} for c in shown
    )
    assert all(unicodedata.bidirectional(c) not in {"LRI", "RLI", "FSI", "PDI"} for c in shown)
    assert not {"\u061c", "\u200e", "\u200f"} & set(shown)
    shown.encode()


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["C"])))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert for_terminal(text) == text


def test_lines_and_tabs_stay_and_windows_line_ends_are_lines() -> None:
    assert for_terminal("a\r\n\tb\n") == "a\n\tb\n"


@settings(deadline=None)
@given(any_text)
def test_lone_surrogates_are_replaced_and_nothing_else(text: str) -> None:
    whole = well_formed(text)
    whole.encode()
    assert len(whole) == len(text)
    assert all(b in {a, "\ufffd"} for a, b in zip(text, whole, strict=True))


@settings(deadline=None)
@given(any_text, st.integers(2, 200))
def test_one_line_is_one_short_line(text: str, width: int) -> None:
    line = one_line(text, width=width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1
    assert "\x1b" not in line


def test_a_long_line_ends_with_an_ellipsis() -> None:
    assert one_line("word " * 100, width=20) == "word word word word…"
    assert one_line("short", width=20) == "short"
