"""Secrets, taken out by value."""

import base64
import json
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff._lib.redact import MASK, Redactor

secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=30).filter(
    lambda s: s not in MASK and MASK not in s
)


def test_a_secret_is_replaced_wherever_it_stands() -> None:
    redactor = Redactor(["sk-12345678"])
    assert redactor.text("Bearer sk-12345678, sk-12345678!") == f"Bearer {MASK}, {MASK}!"
    assert redactor.data(b'{"x":"sk-12345678"}') == b'{"x":"[redacted]"}'


def test_text_without_a_secret_is_returned_as_it_is() -> None:
    text = "nothing here"
    assert Redactor(["sk-12345678"]).text(text) is text
    assert Redactor().text(text) is text


def test_a_value_too_short_to_be_a_secret_does_not_blank_out_words() -> None:
    assert Redactor(["", "a", "key"]).text("a key is a key") == "a key is a key"


def test_the_longest_is_replaced_first() -> None:
    redactor = Redactor(["secret-1"])
    redactor.add(["secret-1-and-more"])
    assert redactor.text("secret-1-and-more") == MASK


@settings(deadline=None)
@given(secrets, st.text(max_size=20), st.text(max_size=20))
def test_no_secret_is_left_in_text(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor([secret]).text(before + secret + after).replace(MASK, "\0")


@settings(deadline=None)
@given(secrets)
def test_no_secret_is_left_in_json_however_it_is_escaped(secret: str) -> None:
    redactor = Redactor([secret])
    for encoded in (
        json.dumps({"k": f"a {secret} b"}).encode(),
        json.dumps({"k": f"a {secret} b"}, ensure_ascii=False).encode(),
        msgspec.json.encode({"k": f"a {secret} b"}),
    ):
        cleaned = redactor.data(encoded)
        assert json.loads(cleaned) == {"k": f"a {MASK} b"}


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["n00000", '"00000', "\\n00000", "\\\\", "\n", "0", "00000", "u0000"]))
)
def test_what_was_json_is_json_afterwards(pieces: list[str]) -> None:
    redactor = Redactor(["n00000", '"00000', "\\n00000", "u00000"])
    data = msgspec.json.encode({"k": "".join(pieces)})
    cleaned = json.loads(redactor.data(data))["k"]
    assert "n00000" not in cleaned
    assert '"00000' not in cleaned


def test_a_secret_with_quotes_and_backslashes_does_not_slip_through_json() -> None:
    secret = 'pa"ss\\wörd\n1'
    data = json.dumps({"key": secret}).encode()
    assert json.loads(Redactor([secret]).data(data)) == {"key": MASK}


@settings(deadline=None)
@given(secrets, st.binary(max_size=4), st.binary(max_size=4))
def test_no_secret_is_left_in_base64_wherever_it_begins(
    secret: str, before: bytes, after: bytes
) -> None:
    redactor = Redactor([secret])
    whole = before + secret.encode() + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(whole).decode()
        cleaned = redactor.text(text)
        assert MASK in cleaned
        longest = max(cleaned.split(MASK), key=len)
        assert len(longest) <= len(before) * 8 // 6 + len(after) * 8 // 6 + 6


@settings(deadline=None)
@given(secrets)
def test_no_secret_is_left_in_hex_or_in_a_url(secret: str) -> None:
    redactor, data = Redactor([secret]), secret.encode()
    for encoded in (
        data.hex(),
        data.hex().upper(),
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        secret.replace("/", "\\/"),
    ):
        assert redactor.text(f"<{encoded}>") == f"<{MASK}>"
    assert Redactor(["a/b=cdef"]).text("a%2fb%3dcdef") == MASK


def test_the_start_of_an_encoded_secret_is_redacted_where_a_message_was_cut() -> None:
    redactor = Redactor(["sk-live-0123456789abcdef"])
    text = base64.b64encode(b"key: sk-live-0123456789abcdef").decode()
    assert redactor.text(f"it said {text[:26]}") == f"it said {text[:7]}{MASK}"


@pytest.mark.parametrize("text", ["the answer is 42", "0123456789abcdef", "c2stbGl2ZQ=="])
def test_text_that_only_looks_encoded_is_left_alone(text: str) -> None:
    assert Redactor(["sk-live-0123456789abcdef"]).text(text) is text
