"""The charts of a report: drawn from specifications, in the colours of the page, deaf to names."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bakeoff
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt
from bakeoff.reports.html.charts import Bar, bar_chart, svg
from support.browser import opened
from support.plans import attempt, candidate, plan, scored_by, task
from support.reports import write_run

HOSTILE = "</svg><script>alert(1)</script>\" onload=alert(2) \u202e\x1b[31m & ' signal:x datum.y"


def priced(trial: Trial) -> Attempt:
    """Dear is right, cheap is right half of the time, bad costs as much as dear."""
    name = trial.candidate.id
    right = name == "dear" or (name == "cheap" and int(trial.task.id[1:]) % 2)
    ended = attempt(score=float(right))
    usage = replace(ended.spent.usage, cost_usd=0.001 if name == "cheap" else 0.4)
    spent = replace(ended.spent, usage=usage, model_s=2.0, requests=1)
    return replace(ended, spent=spent)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tasks = [
        replace(task(f"t{n:03}", scorers=scored_by("exact")), category="odd" if n % 2 else "even")
        for n in range(12)
    ]
    names = [candidate(name) for name in ("dear", "cheap", "bad")]
    run = write_run(
        tmp_path_factory.mktemp("charts") / "r1", plan(*tasks, candidates=names, rollouts=2), priced
    )
    (path,) = bakeoff.report(run)
    return path


def test_a_run_has_its_charts_and_each_says_in_words_what_it_shows(page: Path) -> None:
    with opened(page) as shown:
        titles = shown.evaluate("[...document.querySelectorAll('.chart b')].map(e => e.innerText)")
        labels = shown.evaluate(
            "[...document.querySelectorAll('.chart svg')].map(e => e.getAttribute('aria-label'))"
        )
        front = shown.evaluate("document.querySelectorAll('.chart .front_marks path').length")
        assert shown.said == []
    assert titles == [
        "Score", "Score against cost", "Score against time", "Difference", "pass@k and pass^k",
        "Score by category",
    ]  # fmt: skip
    assert labels[0] == "Score. dear: 1.000; cheap: 0.500; bad: 0.000"
    assert labels[1] == "Score against cost. dear: 1.000 at $9.60; cheap: 0.500 at $0.0240; bad: 0.000 at $9.60"  # fmt: skip
    assert front == 2, "a line in each chart that has a Pareto front"


def test_a_chart_follows_the_page_into_the_dark(page: Path) -> None:
    colours = []
    for dark in (False, True):
        with opened(page, dark=dark) as shown:
            colours.append(
                shown.evaluate(
                    "['.bar_marks path', '.label_marks text', '.whisker_marks line'].map(s => {"
                    " const c = getComputedStyle(document.querySelector('.chart ' + s));"
                    " return s.includes('line') ? c.stroke : c.fill })"
                )
            )
    light, dark_ = colours
    assert all(one != other for one, other in zip(light, dark_, strict=True))
    assert not [colour for colour in (*light, *dark_) if "var" in colour or colour == "none"]


def test_a_name_is_text_in_a_chart_and_never_a_part_of_it() -> None:
    chart = bar_chart(HOSTILE, "note", [Bar(label=HOSTILE, value=0.5, text=HOSTILE)])
    drawn = str(chart.drawing)
    root = ET.fromstring(drawn)
    assert {element.tag for element in root.iter()} <= {"svg", "g", "path", "text", "line", "rect"}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", drawn)
    assert not [a for e in root.iter() for a in e.attrib if a.lower().startswith("on")]
    assert any((text.text or "").startswith("</svg><script>") for text in root.iter("text"))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.floats())
def test_no_text_and_no_number_breaks_the_renderer(text: str, number: float) -> None:
    drawn = svg(bar_chart("Score", "", [Bar(label=text, value=number, text=text)]).spec)
    assert ET.fromstring(drawn) is not None


def test_a_chart_loads_nothing_even_if_its_specification_asks_for_it() -> None:
    asks = {"data": {"url": "http://127.0.0.1:9/x.json"}, "mark": "bar",
            "encoding": {"x": {"field": "a", "type": "quantitative"}}}  # fmt: skip
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        svg(asks)


def test_a_chart_of_nothing_is_drawn() -> None:
    assert "<svg" in str(bar_chart("Score", "", []).drawing)
    unknown = bar_chart("Score", "", [Bar(label="a", value=None, text="–")])
    assert "–" in str(unknown.drawing)
