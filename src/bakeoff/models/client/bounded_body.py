"""Read a response body: decompressed, and never more than the size limit."""

import zlib
from collections.abc import Mapping

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.retry import RetryableError

LARGEST_BODY = 64 * 1024 * 1024
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class BoundedBody:
    """Checks and decompresses one response body, chunk by chunk.

    `exact` means that the transport ends it at its Content-Length, so it may be read at once.
    """

    def __init__(self, headers: Mapping[str, str], largest: int = LARGEST_BODY) -> None:
        encoding = headers.get("Content-Encoding")
        length = headers.get("Content-Length")
        self._largest = largest
        if length and length.isdigit() and int(length[:20]) > largest:
            raise _too_large(largest)
        self.exact = length is not None and encoding is None and "Transfer-Encoding" not in headers
        self._size = 0
        self._encoding = encoding
        self._stream = _decompressor(encoding) if encoding else None

    def take(self, part: bytes) -> bytes:
        """Return *part*, decompressed."""
        if self._stream is not None:
            try:
                # one byte over the limit is enough to know
                part = self._stream.decompress(part, self._largest + 1)
            except zlib.error as error:
                raise ProviderError(f"the answer is not valid {self._encoding}: {error}") from error
        self._size += len(part)
        if self._size > self._largest:
            raise _too_large(self._largest)
        return part

    def end(self) -> None:
        """Check that a compressed body is complete."""
        if self._stream is not None and not self._stream.eof:
            raise RetryableError(f"the answer was cut: its {self._encoding} has no end")


def _decompressor(encoding: str) -> "zlib._Decompress | None":
    kind = encoding.strip().lower()
    if kind == "identity":
        return None
    if kind not in _ENCODINGS:
        raise ProviderError(
            f"the answer is packed as {one_line(encoding)!r}, which was not asked for"
        )
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _too_large(largest: int) -> ProviderError:
    return ProviderError(
        f"the answer is larger than {largest >> 20} MiB; `max_answer_mib` in the model's settings "
        "allows more"
    )
