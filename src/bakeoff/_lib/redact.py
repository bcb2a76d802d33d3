"""Secrets, taken out by value wherever text leaves the process."""

from collections.abc import Iterable

MASK = "[redacted]"
_SHORTEST = 6  # a shorter value would blank out ordinary words


class Redactor:
    """Knows the secret values of this process and replaces them in text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self._encoded: tuple[bytes, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more values; the longest are replaced first."""
        known = {*self._secrets, *(s for s in secrets if len(s) >= _SHORTEST)}
        self._secrets = tuple(sorted(known, key=len, reverse=True))
        self._encoded = tuple(s.encode("utf-8", "surrogatepass") for s in self._secrets)

    def text(self, text: str) -> str:
        """Return *text* without any known secret."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Return *data* without any known secret."""
        for secret in self._encoded:
            if secret in data:
                data = data.replace(secret, MASK.encode())
        return data
