"""JSON that people write: a key that stands twice, in every kind of file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff._lib.decode_errors import repeated_keys
from bakeoff.core.errors import UsageError
from bakeoff.formats.dialogue import read_cases
from bakeoff.formats.prepared_files import read_meta, read_overrides
from bakeoff.formats.suite import read_suite
from bakeoff.formats.text.json import read_json
from bakeoff.frontends.test_runner.settings import read_config

SUITE = '{"tests": [{"id": "a", "prompt": "p"}]}'


def read_beside(path: Path) -> object:
    """Read the suite that *path* lies beside."""
    (path.parent / "suite.json").write_text(SUITE)
    return read_suite(path.parent / "suite.json")


@pytest.mark.parametrize(
    ("name", "read", "text", "key"),
    [
        (
            "suite.json",
            read_suite,
            '{"tests": [{"id": "a",\n"prompt": "p",\n"expected": 1,\n"prompt": "q"}]}',
            "tests[0].prompt",
        ),
        ("categories.json", read_beside, '{"categories":\n{"a": {},\n"b": {},\n"a": {}}}',
         "categories.a"),
        ("test_suite_metadata.json", read_beside,
         '{\n"global_settings": {},\n"x": 1,\n"global_settings": {}}', "global_settings"),
        ("config.json", read_config, '{"logging": {\n"level": "INFO",\n"file": "x",\n"level": "INFO"}}',
         "logging.level"),
        ("tb_overrides.json", read_overrides, '{\n"prompt": "a",\n\n"prompt": "b"}', "prompt"),
        ("tb_meta.json", lambda path: read_meta(path.parent), '{\n"prompt": "a",\n\n"prompt": "b"}',
         "prompt"),
        ("talk.json", read_cases, '{\n"objective": "a",\n\n"objective": "b"}', "objective"),
    ],
)  # fmt: skip
def test_a_key_that_stands_twice_is_refused_with_both_lines(
    tmp_path: Path, name: str, read: Callable[[Path], object], text: str, key: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read(path)
    what = f"key '{key}' is repeated here; it was first on line 2"
    assert str(caught.value) == f"{path}:4: {what}"


def test_all_keys_that_stand_twice_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": {"b": 1,\n"b": 2,\n"b": 3},\n"c": [{"d": {}, "d": {}}],\n"a": 5}')
    with pytest.raises(UsageError) as caught:
        read_json(path)
    assert str(caught.value).split("\n") == [
        f"{path}:5: key 'a' is repeated here; it was first on line 1",
        f"{path}:2: key 'a.b' is repeated here; it was first on line 1",
        f"{path}:3: key 'a.b' is repeated here; it was first on line 2",
        f"{path}:4: key 'c[0].d' is repeated here; it was first on line 4",
    ]


def test_the_same_key_in_two_objects_is_fine_and_so_is_an_escaped_one(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": {"a": {"b": 1}}, "b": [{"b": 1}, {"b": 2}], "c\\u0061": 1}')
    assert read_json(path)[0] == json.loads(path.read_text())
    path.write_text('{"a": 1, "\\u0061": 2}')
    with pytest.raises(UsageError, match="key 'a' is repeated here"):
        read_json(path)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(_json, st.sampled_from([None, 1]))
def test_no_key_is_told_where_none_stands_twice(value: object, indent: int | None) -> None:
    assert not list(repeated_keys(json.dumps(value, indent=indent)))
