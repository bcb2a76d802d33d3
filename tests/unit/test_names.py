"""File names made from ids."""

from pathlib import PurePosixPath

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bakeoff._lib.files import safe_name

ids = st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9._/-]{1,40}", fullmatch=True)


@settings(deadline=None)
@given(ids)
@example("..")
@example(".")
@example("")
@example("/etc/passwd")
@example("../../x")
@example("a\x00b")
@example("\ud800")
@example("x" * 500)
def test_a_name_is_one_part_of_a_path_and_short(text: str) -> None:
    name = safe_name(text)
    assert PurePosixPath("/runs", name).parent == PurePosixPath("/runs")
    assert name not in {"", ".", ".."}
    assert not name.startswith(".")
    assert len(name.encode()) < 100
    assert name.isprintable()
    assert name.isascii()


@settings(deadline=None)
@given(ids, ids)
@example("a/b", "a_b")
@example("A", "a")
@example("é", "è")
@example("x" * 100, "x" * 101)
def test_different_ids_have_different_names(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@settings(deadline=None)
@given(ids)
@example("a/b")
def test_an_id_that_looks_like_the_name_of_another_does_not_take_it(text: str) -> None:
    name = safe_name(text)
    assert name == text or safe_name(name) != name


def test_a_plain_name_stays_readable() -> None:
    assert safe_name("math_01.v2-b") == "math_01.v2-b"
    assert safe_name("llama3:8b").startswith("llama3_8b-")


def test_a_hundred_thousand_ids_without_a_plain_letter_do_not_meet() -> None:
    texts = [f"{chr(0x4E00 + n % 5000)}{chr(0x4E00 + n // 5000)}" for n in range(100_000)]
    assert len({safe_name(t) for t in texts}) == 100_000
