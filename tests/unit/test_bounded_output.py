"""Output kept in a room of fixed size."""

from hypothesis import given
from hypothesis import strategies as st

from bakeoff._lib.process import BoundedOutput

PIECES = st.lists(st.text(alphabet="abcdefgh\n", max_size=400).map(str.encode), max_size=40)


@given(PIECES, st.integers(0, 3000))
def test_no_more_is_kept_than_there_is_room_for(pieces: list[bytes], most: int) -> None:
    kept = BoundedOutput(most)
    for piece in pieces:
        kept.add(piece)
    assert len(kept.text()) <= most
    assert kept.total == sum(map(len, pieces))


@given(PIECES, st.integers(0, 3000))
def test_what_is_kept_is_the_beginning_and_the_end(pieces: list[bytes], most: int) -> None:
    kept = BoundedOutput(most)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces).decode()
    if not kept.truncated:
        assert kept.text() == whole
        return
    first, _, last = kept.text().partition("\n[... ")
    if not last:
        assert whole.startswith(first[: most // 2])
        assert whole.endswith(first[most // 2 :])
    else:
        assert whole.startswith(first)
        assert whole.endswith(last.partition(" bytes left out ...]\n")[2])


def test_it_says_how_much_is_left_out() -> None:
    kept = BoundedOutput(1000)
    kept.add(b"a" * 5000)
    assert "[... 4,064 bytes left out ...]" in kept.text()


def test_bytes_that_are_no_text_do_no_harm() -> None:
    kept = BoundedOutput(1000)
    kept.add(b"\xff\xfe ok \xc3")
    assert kept.text() == "\ufffd\ufffd ok \ufffd"
