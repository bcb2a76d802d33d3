"""`.env` files: what a line means, who wins, and that no value is ever told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.formats.text.env import environment, read_env_file


def _read(tmp_path: Path, text: str | bytes) -> dict[str, str]:
    path = tmp_path / "some.env"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_env_file(path)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=value", "value"),
        ("export KEY=value", "value"),
        ("  export\tKEY = value  ", "value"),
        ("KEY=", ""),
        ("KEY=a value with spaces", "a value with spaces"),
        ("KEY=a=b==", "a=b=="),
        ("KEY=value # a comment", "value"),
        ("KEY= # only a comment", ""),
        ("KEY=a#b", "a#b"),
        ("KEY='a # b' # c", "a # b"),
        ("KEY='$HOME \\n \"x\"'", '$HOME \\n "x"'),
        ('KEY="a # b"', "a # b"),
        ('KEY="a\\nb\\tc\\rd\\\\e\\"f\\$g"', 'a\nb\tc\rd\\e"f$g'),
        ('KEY="it\'s"', "it's"),
        ("KEY=it's", "it's"),
        ("KEY=$OTHER-${OTHER}-$(id)-`id`", "$OTHER-${OTHER}-$(id)-`id`"),
        ('KEY="$OTHER"', "$OTHER"),
        ("KEY=größe", "größe"),
    ],
)
def test_a_line_means_what_it_says(tmp_path: Path, line: str, value: str) -> None:
    assert _read(tmp_path, f"# first\n\n{line}\r\nNEXT=1") == {"KEY": value, "NEXT": "1"}


def test_the_last_of_two_counts_and_a_byte_order_mark_does_not(tmp_path: Path) -> None:
    assert _read(tmp_path, b"\xef\xbb\xbfA=1\nA=2\n") == {"A": "2"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sk-hidden-value", "not NAME=value"),
        ("1KEY=sk-hidden-value", "not NAME=value"),
        ("MY-KEY=sk-hidden-value", "not NAME=value"),
        ("KEY='sk-hidden-value", "quote of KEY is not closed"),
        ('KEY="sk-hidden-value\\"', "quote of KEY is not closed"),
        ("KEY='a' sk-hidden-value", "after the closing quote of KEY"),
        ('KEY="sk-hidden-value\\x41"', "escape in KEY"),
        ("KEY=sk-hidden-value\0", "NUL"),
        (b"KEY=sk-hidden-value\xff", "not UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_without_its_value(
    tmp_path: Path, line: str | bytes, said: str
) -> None:
    text = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(UsageError, match=said) as caught:
        _read(tmp_path, b"A=1\n# two\n" + text)
    assert "some.env:3: " in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.text(st.characters(exclude_characters="'\n\r\0", exclude_categories=["Cs"])))
def test_single_quotes_keep_anything(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    path = tmp_path_factory.mktemp("env")
    assert _read(path, f"KEY='{value}'") == {"KEY": value}


# --- which file, and who wins


def test_the_shell_wins_over_the_file_and_only_names_are_told(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("BOTH=of-the-file\nNEW=sk-hidden-value\n")
    shell = {"BOTH": "of-the-shell", "OTHER": "1"}
    found = environment(shell, named=None, here=tmp_path)
    assert found.values == {"BOTH": "of-the-shell", "OTHER": "1", "NEW": "sk-hidden-value"}
    assert shell == {"BOTH": "of-the-shell", "OTHER": "1"}
    assert found.notice == f"read from {tmp_path / '.env'}: NEW (the shell has its own BOTH)"
    assert "hidden" not in repr(found)


def test_a_file_that_is_named_is_read_instead(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=found\n")
    (tmp_path / "other.env").write_text("A=named\n")
    found = environment({}, named=tmp_path / "other.env", here=tmp_path)
    assert found.values == {"A": "named"}


def test_without_a_file_there_is_only_the_shell(tmp_path: Path) -> None:
    shell = {"A": "1"}
    found = environment(shell, named=None, here=tmp_path)
    assert (found.values, found.notice) == (shell, None)


def test_a_named_file_must_be_there_and_right(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        environment({}, named=tmp_path / "none.env", here=tmp_path)
    (tmp_path / "bad.env").write_text("?\n")
    with pytest.raises(UsageError, match=r"bad.env:1: not NAME=value"):
        environment({}, named=tmp_path / "bad.env", here=tmp_path)


def test_somebody_elses_file_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nsk-hidden-value\n")
    found = environment({"B": "2"}, named=None, here=tmp_path)
    assert found.values == {"B": "2"}
    assert found.notice is not None
    assert found.notice.endswith("; the file is left out")
    assert ".env:2: " in found.notice
    assert "hidden" not in found.notice


def test_all_lines_that_are_wrong_are_told(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n2B=x\nC='open\nD=2\n")
    with pytest.raises(UsageError) as caught:
        read_env_file(path)
    assert [line.partition(": ")[0] for line in str(caught.value).split("\n")] == [
        f"{path}:2",
        f"{path}:3",
    ]
