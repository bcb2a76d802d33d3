"""Secrets, taken out by value wherever text leaves the process."""

import json
from collections.abc import Iterable

MASK = "[redacted]"
_SHORTEST = 6  # a shorter value would blank out ordinary words
_HEAD = 12  # so much of a longer one is enough: a message may have been cut in the middle of it


class Redactor:
    """Knows the secret values of this process and replaces them, whole or cut, in text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._heads: tuple[bytes, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more values; the longest are replaced first."""
        self._secrets |= {s for s in secrets if len(s) >= _SHORTEST}
        forms = {form for secret in self._secrets for form in _forms(secret)}
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        heads = {form[:_HEAD] for form in forms}
        self._heads = tuple(head.encode("utf-8", "surrogatepass") for head in heads)

    def text(self, text: str) -> str:
        """Return *text* without any known secret."""
        for form in self._forms:
            text = text.replace(form, MASK)
        for form in self._forms:
            if form[:_HEAD] in text:
                text = _masked(text, form)
        return text

    def data(self, data: bytes) -> bytes:
        """Return *data*, which is JSON, without any known secret, and still JSON."""
        if not any(head in data for head in self._heads):
            return data
        clean = self._clean(json.loads(data))
        return json.dumps(clean, ensure_ascii=False, separators=(",", ":")).encode()

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._clean(inner) for inner in value]
        return value


def _forms(secret: str) -> set[str]:
    """Return *secret* as it may stand in a text: as it is, and escaped by JSON once or twice."""
    forms = {secret}
    for _ in range(2):
        forms |= {
            json.dumps(f, ensure_ascii=ascii_)[1:-1] for f in forms for ascii_ in (True, False)
        }
    return forms


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
