"""How `bakeoff show` colours changes and scores, and that it adds and loses no text."""

from hypothesis import given
from hypothesis import strategies as st

from bakeoff._lib.sanitize import for_terminal
from bakeoff.cli.show_command import coloured_patch, coloured_score
from bakeoff.core.record import Score

PATCH = """\
diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -1,2 +1,2 @@
 kept
-old
+new"""


def test_each_line_of_a_patch_has_the_colour_of_its_kind() -> None:
    text = coloured_patch(PATCH)
    styles = {text.plain[span.start : span.end].strip(): str(span.style) for span in text.spans}
    assert styles["+new"] == "green"
    assert styles["-old"] == "red"
    assert styles["@@ -1,2 +1,2 @@"] == "cyan"
    assert styles["--- a/x.py"] == styles["+++ b/x.py"] == "bold"
    assert "kept" not in styles


@given(st.text())
def test_a_patch_says_what_it_said_without_what_a_terminal_obeys(patch: str) -> None:
    assert coloured_patch(patch).plain == for_terminal(patch)


def test_a_score_is_green_where_it_is_full_and_red_where_it_is_nothing() -> None:
    styles = [
        str(coloured_score(Score(scorer="x", value=value)).spans[0].style)
        for value in (1.0, 0.5, 0.0)
    ]
    assert styles == ["green", "yellow", "red"]
    text = coloured_score(Score(scorer="x", value=0.5, explanation="a\x1b[31mb")).plain
    assert text == "score x 0.500 (weight 1): a\N{REPLACEMENT CHARACTER}[31mb"
