"""Secrets, taken out by value wherever text leaves the process."""

import json
import re
from collections.abc import Iterable

MASK = "[redacted]"
_SHORTEST = 6  # a shorter value would blank out ordinary words


class Redactor:
    """Knows the secret values of this process and replaces them in text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self._in_json: dict[bytes, re.Pattern[bytes]] = {}
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more values; the longest are replaced first."""
        known = {*self._secrets, *(s for s in secrets if len(s) >= _SHORTEST)}
        self._secrets = tuple(sorted(known, key=len, reverse=True))
        forms = sorted({f for s in known for f in _json_forms(s)}, key=len, reverse=True)
        self._in_json = {form: _unescaped(form) for form in forms}

    def text(self, text: str) -> str:
        """Return *text* without any known secret."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Return *data*, which is JSON, without any known secret, and still JSON."""
        for form, pattern in self._in_json.items():
            if form in data:
                data = pattern.sub(rb"\1" + MASK.encode(), data)
        return data


def _json_forms(secret: str) -> tuple[bytes, bytes]:
    """Return *secret* as it stands in JSON, with other alphabets as they are and escaped."""
    whole = json.dumps(secret, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
    return whole, json.dumps(secret)[1:-1].encode()


def _unescaped(form: bytes) -> re.Pattern[bytes]:
    """Match *form*, but not from the middle of an escape such as the n of a line's end."""
    return re.compile(rb"(?<!\\)((?:\\\\)*)" + re.escape(form))
