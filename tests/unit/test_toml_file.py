"""TOML: the line of every key, and settings from the command line."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.formats.text.toml import line_of, read_toml, with_overrides

DOCUMENT = '''\
# rollouts = 7 in a comment is no key
name = "x"   # parallel = 3
description = """
rollouts = 5
[limits]
"""
rollouts = 1
models = [
  "a",
  { model = "b", base_url = "http://x/[v1]" },   # ]
]
limits.time_s = 3
"quoted.key" = 1
other = \'\'\'
[[tasks]]
\'\'\'

[roles]
[roles.judge]
model = "j"

[[tasks]]
id = "a"
expected = [
  ["x"],
  [1, 2]
]
scorers = ["exact"]

[[tasks]]   # the second
id = "b"
parameters = { temperature = 0, stop = ["]"] }
metadata.domain = "d"

[tasks.extra]
deep = 1
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("name",), 2),
        (("rollouts",), 7),
        (("models",), 8),
        (("models", 1, "base_url"), 8),
        (("limits",), 12),
        (("limits", "time_s"), 12),
        (("quoted.key",), 13),
        (("roles",), 18),
        (("roles", "judge"), 19),
        (("roles", "judge", "model"), 20),
        (("tasks",), 22),
        (("tasks", 0), 22),
        (("tasks", 0, "expected", 1, 0), 24),
        (("tasks", 0, "scorers"), 28),
        (("tasks", 1), 30),
        (("tasks", 1, "id"), 31),
        (("tasks", 1, "parameters", "stop"), 32),
        (("tasks", 1, "metadata", "domain"), 33),
        (("tasks", 1, "extra", "deep"), 36),
        (("tasks", 1, "nowhere"), 30),
        (("nowhere",), None),
    ],
)
def test_a_key_is_found_on_its_line_or_the_nearest_one(
    key: tuple[str | int, ...], line: int | None
) -> None:
    tomllib.loads(DOCUMENT)
    assert line_of(DOCUMENT, key) == line


_names = st.from_regex(r"[a-z][a-z0-9_-]{0,6}", fullmatch=True)
_noise = st.sampled_from(
    [
        "",
        "# k = 1",
        "[",
        'text = """\n[[t]]\nk = "\n"""',
        "text = '''\n[a]\n'''",
        'text = [\n"]", # ]\n{k=1}\n]',
        'text = "a # b = \\" [c]"',
        "text = ''",
    ]
)


@settings(deadline=None)
@given(
    tables=st.lists(st.tuples(_names, _noise), max_size=5, unique_by=lambda t: t[0]),
    crlf=st.booleans(),
)
def test_each_table_and_key_is_found_whatever_stands_between(
    tables: list[tuple[str, str]], crlf: bool
) -> None:
    lines: list[str] = []
    where: dict[tuple[str | int, ...], int] = {}
    for name, noise in tables:
        if noise == "[":
            noise = "text = [\n[\n'x'\n],\n[]]"  # noqa: PLW2901 -- spelled out here for the reader
        where[(name,)] = len(lines) + 1
        lines.append(f"[{name}]")
        lines += noise.split("\n")
        where[(name, "wanted")] = len(lines) + 1
        lines.append("wanted = 1")
    text = ("\r\n" if crlf else "\n").join(lines)
    tomllib.loads(text)
    assert {key: line_of(text, key) for key in where} == where


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 3))
def test_the_nth_table_of_an_array_is_told_from_the_others(count: int, blank: int) -> None:
    block = "[[tasks]]\n" + "\n" * blank + "id = 'x'\n[[tasks.scorers]]\nscorer = 'y'\n"
    height = block.count("\n")
    text = block * count
    for n in range(count):
        assert line_of(text, ("tasks", n, "id")) == n * height + blank + 2
        assert line_of(text, ("tasks", n, "scorers", 0, "scorer")) == n * height + blank + 4


def _read(tmp_path: Path, data: str | bytes) -> object:
    path = tmp_path / "run.toml"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_toml(path)[0]


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    assert _read(tmp_path, b"\xef\xbb\xbfrollouts = 2\n") == {"rollouts": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a = 1\nb = = 2\n", r"run\.toml:2: not valid TOML"),
        (b"a = '\xff'", r"run\.toml is not UTF-8 text \(byte 5\)"),
        (b"x = 1\n[[tasks]]\nexpected = 2024-01-01\n", r"run\.toml:3: key 'expected': a date "),
        (b"\ntime_s = nan", r"run\.toml:2: key 'time_s': nan cannot be recorded"),
        (b"\n\na = { b = [1, inf] }", r"run\.toml:3: key '1': inf cannot be recorded"),
        (b"a = " + b"[" * 300 + b"]" * 300, r"nested more than 200 levels"),
        (b"a = " + b"[" * 20_000 + b"]" * 20_000, r"nested more than 200 levels"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(
    tmp_path: Path, text: bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _read(tmp_path, text)


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.toml cannot be read: No such file"):
        read_toml(tmp_path / "no.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("word", "word"),
        ('"3"', "3"),
        ('["a", "b"]', ["a", "b"]),
        ("{ a = 1 }", {"a": 1}),
        ("", ""),
        ("a b = c", "a b = c"),
        ("2024-01-01", "2024-01-01"),
        ("nan", "nan"),
    ],
)
def test_a_setting_is_read_as_toml_and_else_as_text(text: str, value: object) -> None:
    assert with_overrides({}, {"key": text}) == {"key": value}


def test_settings_reach_into_tables_and_leave_the_original_alone() -> None:
    data: dict[str, Any] = {"limits": {"time_s": 1, "requests": 2}, "name": "n"}
    changed = with_overrides(data, {"limits.time_s": "9", "roles.judge.model": "m"})
    assert changed == {
        "limits": {"time_s": 9, "requests": 2},
        "name": "n",
        "roles": {"judge": {"model": "m"}},
    }
    assert data == {"limits": {"time_s": 1, "requests": 2}, "name": "n"}


def test_a_setting_inside_what_is_no_table_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--set name\.first: 'name' is not a table"):
        with_overrides({"name": "n"}, {"name.first": "x"})
