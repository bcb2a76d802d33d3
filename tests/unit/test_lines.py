"""The line of a key in JSON, and of what is wrong in each file that is JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff._lib.decode_errors import json_line_of
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.formats.dialogue import read_cases
from bakeoff.formats.prepared import PreparedDir, read_prepared
from bakeoff.formats.prepared_files import read_meta, read_overrides
from bakeoff.formats.suite import read_suite
from bakeoff.formats.text.locate import line_in, shown

DOCUMENT = r"""
{
  "a": "text with \" { [ : , in it",
  "b" : [
    1, {"c": null,
        "d": [[],
              [true]]}
  ], "e": {}, "\u0066":
    "an escaped key",
  "g": 1,
  "g": {
    "last": 2 }
}
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ((), None),
        (("a",), 3),
        (("b",), 4),
        (("b", 0), 5),
        (("b", 1), 5),
        (("b", 1, "c"), 5),
        (("b", 1, "d"), 6),
        (("b", 1, "d", 1, 0), 7),
        (("e",), 8),
        (("f",), 8),
        (("g", "last"), 12),
        (("b", 9), 4),
        (("e", "gone"), 8),
        (("a", "not", "there"), 3),
        (("none",), None),
    ],
)
def test_a_key_of_json_has_its_line_or_that_of_what_holds_it(
    key: tuple[str | int, ...], line: int | None
) -> None:
    json.loads(DOCUMENT)
    assert json_line_of(DOCUMENT, key) == line


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def _paths(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of everything in *value*, in the order in which it is written."""
    pairs: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for step, inner in pairs:
        yield (*at, step)
        yield from _paths(inner, (*at, step))


@given(_json, st.booleans())
def test_every_value_of_an_indented_file_has_a_line_of_its_own(value: object, plain: bool) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=plain)
    lines = [json_line_of(text, path) for path in _paths(value)]
    closing = {n for n, line in enumerate(text.split("\n"), start=1) if line.strip(" ,") in "]}"}
    opening = {1}
    expected = sorted(set(range(1, text.count("\n") + 2)) - closing - opening)
    assert lines == expected


def _written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("test", "line"),
    [
        ('"id": 5', 4),
        ('"id": " ",\n"prompt": "p"', 4),
        ('"id": "ok",\n"prompt": "p"', 4),
        ('"prompt": "p"', 3),
        ('"id": "x",\n"prompt": 5', 5),
        ('"id": "x",\n"prompt": "p",\n"metadata": {\n"timeout_seconds": 0}', 7),
        ('"id": "x",\n"prompt": "p",\n"scorers": ["exact",\n{"scorer": "exact",\n"weigth": 1}]', 8),
        ('"id": "x",\n"prompt": "p",\n"scorers": [{"scorer": "exact",\n"weight": -1}]', 7),
        ('"id": "x"', 3),
        ('"id": "x",\n"prompt": "p",\n"messages": []', 6),
        ('"id": "x",\n"messages": []', 5),
        ('"id": "x",\n"messages": [\n{"role": "user"}]', 6),
        ('"id": "x",\n"messages": [\n{"role": "user",\n"content": [{"type": "image"}]}]', 7),
    ],
)
def test_a_mistake_in_a_suite_names_its_line(tmp_path: Path, test: str, line: int) -> None:
    text = '\ufeff{"tests": [\n{"id": "ok", "prompt": "p"},\n{\n' + test + "}]}"
    path = _written(tmp_path, "suite.json", text)
    with pytest.raises(UsageError) as told:
        read_suite(path)
    assert str(told.value).startswith(f"{path}:{line}: "), told.value


def test_a_mistake_in_a_file_beside_a_suite_names_its_line(tmp_path: Path) -> None:
    path = _written(tmp_path, "suite.json", '{"tests": [{"id": "a", "prompt": "p"}]}')
    _written(
        tmp_path, "test_suite_metadata.json", '{"global_settings": {\n"delay_between_tests": -1}}'
    )
    with pytest.raises(UsageError, match=r"test_suite_metadata\.json:2: key .*delay_between_tests"):
        read_suite(path)


def test_a_mistake_in_a_dialogue_in_json_names_its_line(tmp_path: Path) -> None:
    text = '{"objective": "o",\n"max_turn": 3}'
    with pytest.raises(UsageError, match=r"case\.json:2: unknown key 'max_turn'"):
        read_cases(_written(tmp_path, "case.json", text))
    text = '{"objective": "o",\n\n"datasets": "none"}'
    with pytest.raises(UsageError, match=r"case\.json:3: key 'datasets'"):
        read_cases(_written(tmp_path, "case.json", text))


def test_a_mistake_in_a_prepared_task_names_its_line(tmp_path: Path) -> None:
    _written(
        tmp_path, "tb_meta.json", '{"task_id": "t",\n"evaluation": {"rubrics": [\n{"id": 3}]}}'
    )
    with pytest.raises(UsageError, match=r"tb_meta\.json:3: key 'evaluation\.rubrics\[0\]\.id'"):
        read_meta(tmp_path)
    path = _written(tmp_path, "overrides.json", '{"prompt": "p",\n"lm_instructions": "q"}')
    with pytest.raises(UsageError, match=r"overrides\.json:2: write `prompt` or"):
        read_overrides(path)
    path = _written(tmp_path, "overrides.json", '{"prompt": "p",\n"promt": "q"}')
    with pytest.raises(UsageError, match=r"overrides\.json:2: unknown key 'promt'"):
        read_overrides(path)


WHOLE = '"repo": {"start_commit_sha": "' + "a" * 40 + '"}, '


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("", r"/tb_meta\.json:3: key 'repo\.start_commit_sha': write the whole commit, not 'abc'"),
        ('"repo": {\n"start_commit_sha": "no"}', r"/overrides\.json:3: key 'repo\.start_commit_sha'"),
        (
            '"rubrics": [{"id": "a"},\n{"id": "b"},\n{"id": "a"}]',
            r"/overrides\.json:4: rubric 'a' is there twice",
        ),
        (
            '"evaluation": {"test_scripts": [\n{"path": "t.sh", "content": "",\n"rubric_id": "no"}]}',
            r"/overrides\.json:4: test script 't\.sh' is for rubric 'no'",
        ),
        (WHOLE + '"inject_files": [\n{"path": "../x", "content": ""}]', r"overrides\.json:3: '\.\./x' must be"),
        ('"environment_variables": {"TIMEOUT_SEC": 0}', r"/overrides\.json:2: TIMEOUT_SEC must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_prepared_task_is_told_with_the_file_and_line_that_said_it(
    tmp_path: Path, changed: str, told: str
) -> None:
    repo = '"repo": {"git_url": "https://127.0.0.1:9/x.git",\n"start_commit_sha": "abc"}'
    rest = '"lm": {"instructions": "do"}, "evaluation": {"rubrics": [{"id": "r"}]}'
    _written(tmp_path, "tb_meta.json", "{" + f'"task_id": "t",\n{repo},\n{rest}' + "}")
    if changed:
        _written(tmp_path, "overrides.json", "{\n" + changed + "}")
    task = read_prepared(PreparedDir(folder=tmp_path, shown=str(tmp_path)))
    assert task.trouble is not None
    assert re.search(told, task.trouble), task.trouble


def test_a_file_that_is_no_longer_what_it_was_has_no_lines(tmp_path: Path) -> None:
    path = _written(tmp_path, "a.json", '{"a": \n')
    assert line_in(path, ("a",)) is None
    path.unlink()
    assert shown(SourceLocation(file=str(path), key=("a",))) == str(path)
    assert shown(SourceLocation(file="--set", key=("a",))) == "--set"


def test_the_line_is_found_in_toml_and_in_the_front_matter_of_markdown_too(tmp_path: Path) -> None:
    toml = _written(tmp_path, "a.toml", "x = 1\n[y]\nz = 2\n")
    assert shown(SourceLocation(file=str(toml), key=("y",)).inside("z")) == f"{toml}:3"
    task = _written(tmp_path, "a.md", "---\ncategory: x\nscorers:\n  - exact\n---\nDo it.\n")
    assert shown(SourceLocation(file=str(task), key=("scorers", 0))) == f"{task}:4"
