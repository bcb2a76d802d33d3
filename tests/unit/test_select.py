"""Which tests are meant."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.formats.detect import read_source
from bakeoff.planning.selection import Selection, select
from support.plans import task

TASKS = (
    task("math_01", category="math"),
    task("math_02", category="math"),
    task("read_01", category="reading"),
    task("odd[1]"),
)


def _ids(**wish: Any) -> list[str]:
    return [t.id for t in select(TASKS, Selection(**wish))]


def test_an_empty_selection_is_everything_in_order() -> None:
    assert _ids() == ["math_01", "math_02", "read_01", "odd[1]"]


@pytest.mark.parametrize(
    ("wish", "ids"),
    [
        ({"categories": ["math"]}, ["math_01", "math_02"]),
        ({"categories": ["reading", "math"]}, ["math_01", "math_02", "read_01"]),
        ({"tests": ["*_01"]}, ["math_01", "read_01"]),
        ({"tests": ["math_0?"]}, ["math_01", "math_02"]),
        ({"tests": ["odd[1]"]}, ["odd[1]"]),
        ({"tests": ["read_01", "math_01"]}, ["math_01", "read_01"]),
        ({"categories": ["math"], "tests": ["*_01"]}, ["math_01"]),
        ({"limit": 2}, ["math_01", "math_02"]),
        ({"limit": 99}, ["math_01", "math_02", "read_01", "odd[1]"]),
        ({"categories": ["reading"], "limit": 1}, ["read_01"]),
    ],
)
def test_wishes_narrow_it_down(wish: dict[str, object], ids: list[str]) -> None:
    assert _ids(**wish) == ids


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"categories": ["maths"]}, r"no category 'maths': did you mean 'math'\?"),
        ({"tests": ["math_1"]}, r"no test 'math_1': did you mean 'math_0"),
        ({"tests": ["MATH_01"]}, r"no test 'MATH_01'"),
        ({"tests": ["zzz*"]}, r"no test 'zzz\*': there are: "),
        ({"limit": 0}, r"limit must be 1 or more, not 0"),
        ({"categories": ["math"], "tests": ["read_01"]}, r"no test matches all of"),
    ],
)
def test_a_wish_that_matches_nothing_is_an_error_with_a_hint(
    wish: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _ids(**wish)


def test_an_id_that_looks_like_a_wildcard_means_itself() -> None:
    odd = (task("odd[1]"), task("odd1"), task("*"))
    assert [t.id for t in select(odd, Selection(tests=["odd[1]"]))] == ["odd[1]"]
    assert [t.id for t in select(odd, Selection(tests=["*"]))] == ["*"]


def test_a_suite_without_tests_is_told_as_that() -> None:
    with pytest.raises(UsageError, match="there are no tests to run"):
        select((), Selection())


@settings(deadline=None)
@given(
    st.sets(st.sampled_from(["math", "reading"])),
    st.sets(st.sampled_from([t.id for t in TASKS])),
    st.none() | st.integers(1, 6),
)
def test_what_is_selected_is_a_part_of_the_whole_in_the_same_order(
    categories: set[str], tests: set[str], limit: int | None
) -> None:
    try:
        chosen = _ids(categories=categories, tests=tests, limit=limit)
    except UsageError:
        return
    everything = _ids()
    assert chosen == [i for i in everything if i in chosen]
    assert limit is None or len(chosen) <= limit
    assert not tests or set(chosen) <= tests


def _row(name: str, **values: str) -> Any:
    tags = values.pop("tags", "").split()
    return task(name, vars=values, metadata={"tags": tags} if tags else {})


ROWS = tuple(
    _row(f"r{n:03}", lang="de" if n % 3 else "en", level=str(n % 5), tags="hard" if n % 7 else "")
    for n in range(100)
)


def test_columns_tags_and_earlier_runs_narrow_it_down() -> None:
    chosen = select(ROWS, Selection(where="lang == 'de' and level > 2", tags=["hard"]))
    assert chosen
    assert all(t.vars["lang"] == "de" and t.vars["level"] in "34" for t in chosen)
    assert [t.id for t in select(ROWS, Selection(within={"r007", "r003"}))] == ["r003", "r007"]
    with pytest.raises(UsageError, match="no tag 'hrad': did you mean 'hard'"):
        select(ROWS, Selection(tags=["hrad"]))
    with pytest.raises(UsageError, match="no column 'langg'; did you mean 'lang'"):
        select(ROWS, Selection(where="langg == 'de'"))
    with pytest.raises(UsageError, match="no test matches all of --tag and --where"):
        select(ROWS, Selection(where="lang == 'fr'", tags=["hard"]))
    with pytest.raises(
        UsageError, match=r"matches --where\n    lang is 'en', 'de'\n    level is '0',"
    ):
        select(ROWS, Selection(where="lang == 'fr' and level > 1"))


@given(seed=st.integers(), size=st.integers(1, 100), without=st.integers(0, 99))
def test_a_sample_is_stable_when_rows_are_added_or_moved(
    seed: int, size: int, without: int
) -> None:
    before = {t.id for t in select(ROWS, Selection(sample=size, seed=seed))}
    fewer = tuple(t for n, t in enumerate(reversed(ROWS)) if n != without)
    after = {t.id for t in select(fewer, Selection(sample=size, seed=seed))}
    assert len(before) == size
    assert len(before - after) <= 1


def test_an_expression_sees_the_columns_that_tasks_keep_under_names_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("qid,question,answer,subject\n1,What is law?,x,law\n2,What is art?,y,art\n")
    spec = read_source(path)
    for where in ("subject == 'art'", "question contains 'art'", "qid == 2", "answer == 'y'"):
        chosen = select(spec.tasks, Selection(where=where, columns=spec.columns))
        assert [task.id for task in chosen] == ["2"]
    (tmp_path / "run.toml").write_text(
        '[[data]]\npath = "rows.csv"\nwhere = "subject == \'law\'"\n'
    )
    assert [task.id for task in read_source(tmp_path / "run.toml").tasks] == ["1"]
