"""Secrets, taken out by value wherever text leaves the process.

A value is recognized as it is, escaped by JSON, URL-encoded, in hex and in base64 (both alphabets,
wherever in the encoded text it begins), whole or cut off after its first characters. Anything else
that can be computed from it (reversed, split, encrypted, compressed) is not.
"""

import json
from base64 import b64encode
from binascii import hexlify
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "[redacted]"
_SHORTEST = 6  # a shorter value would blank out ordinary words
_HEAD = 12  # so much of a longer one is enough: a message may have been cut in the middle of it
_URL_SAFE = str.maketrans("+/", "-_")


class Redactor:
    """Knows the secret values of this process and replaces them, whole or cut, in text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._heads: tuple[str, ...] = ()
        self._data_heads: tuple[bytes, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more values; the longest are replaced first."""
        new = {s for s in secrets if len(s) >= _SHORTEST and s not in MASK} - self._secrets
        if not new:
            return
        self._secrets |= new
        forms = {form for secret in self._secrets for form in _forms(secret)}
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        # most records hold no secret: what all forms begin with is all that is searched in those
        self._heads = tuple({form[:_HEAD] for form in forms})
        self._data_heads = tuple(head.encode("utf-8", "surrogatepass") for head in self._heads)

    def text(self, text: str) -> str:
        """Return *text* without any known secret."""
        for head in self._heads:
            if head in text:
                return self._redacted(text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return *data*, which is JSON, without any known secret, and still JSON."""
        for head in self._data_heads:  # a loop, not any(): every record goes through here
            if head in data:
                clean = self._clean(json.loads(data))
                return json.dumps(clean, ensure_ascii=False, separators=(",", ":")).encode()
        return data

    def _redacted(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, MASK)
        for form in self._forms:
            if form[:_HEAD] in text:
                text = _masked(text, form)
        return text

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._clean(inner) for inner in value]
        return value


def _forms(secret: str) -> set[str]:
    """Return *secret* as it may stand in a text: encoded or not, and escaped by JSON up to twice."""
    forms = {secret, *_url_encoded(secret), *_encoded(secret.encode("utf-8", "surrogatepass"))}
    for _ in range(2):
        forms |= {
            json.dumps(f, ensure_ascii=ascii_)[1:-1] for f in forms for ascii_ in (True, False)
        }
    return forms | {form.replace("/", "\\/") for form in forms}  # as some JSON writers do


def _url_encoded(secret: str) -> Iterator[str]:
    for encoded in (
        quote(secret, safe="", errors="surrogatepass"),
        quote(secret, safe="/", errors="surrogatepass"),
        quote_plus(secret, errors="surrogatepass"),
    ):
        yield encoded
        yield _lower_escapes(encoded)


def _lower_escapes(text: str) -> str:
    first, *rest = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _encoded(secret: bytes) -> Iterator[str]:
    """Yield *secret* in hex and base64, without the characters that it shares with its neighbours."""
    digits = hexlify(secret).decode()
    yield digits
    yield digits.upper()
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret).decode()
        shared = -(-before * 8 // 6)
        own = encoded[shared : (before + len(secret)) * 8 // 6]
        yield own
        yield own.translate(_URL_SAFE)


def _masked(text: str, secret: str) -> str:
    """Return *text* with every beginning of *secret* masked, as far as it goes."""
    parts, at = [], 0
    while (found := text.find(secret[:_HEAD], at)) >= 0:
        end = found + min(_HEAD, len(secret))
        while end < len(text) and end - found < len(secret) and text[end] == secret[end - found]:
            end += 1
        parts += [text[at:found], MASK]
        at = end
    return "".join([*parts, text[at:]])
