"""The bytes of an answer on their way in: unpacked, and never more than an answer may have."""

import zlib
from collections.abc import Mapping

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.retry import TryAgain

LARGEST_BODY = 64 * 1024 * 1024
_PACKINGS = frozenset({"gzip", "x-gzip", "deflate"})


class BoundedBody:
    """Takes one answer part by part, as its headers say it comes.

    `exact` tells that the transport ends it where the headers said, so that it may be read whole.
    """

    def __init__(self, headers: Mapping[str, str], largest: int = LARGEST_BODY) -> None:
        packing = headers.get("Content-Encoding")
        length = headers.get("Content-Length")
        self._largest = largest
        if length and length.isdigit() and int(length[:20]) > largest:
            raise _too_large(largest)
        self.exact = length is not None and packing is None and "Transfer-Encoding" not in headers
        self._size = 0
        self._packing = packing
        self._stream = _unpacker(packing) if packing else None

    def take(self, part: bytes) -> bytes:
        """Return what is in *part*."""
        if self._stream is not None:
            try:
                # one byte too many is enough to know
                part = self._stream.decompress(part, self._largest + 1)
            except zlib.error as error:
                raise ProviderError(f"the answer is not valid {self._packing}: {error}") from error
        self._size += len(part)
        if self._size > self._largest:
            raise _too_large(self._largest)
        return part

    def end(self) -> None:
        """Check that what was packed came to its end."""
        if self._stream is not None and not self._stream.eof:
            raise TryAgain(f"the answer was cut: its {self._packing} has no end")


def _unpacker(packing: str) -> "zlib._Decompress | None":
    kind = packing.strip().lower()
    if kind == "identity":
        return None
    if kind not in _PACKINGS:
        raise ProviderError(
            f"the answer is packed as {one_line(packing)!r}, which was not asked for"
        )
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _too_large(largest: int) -> ProviderError:
    return ProviderError(
        f"the answer is larger than {largest >> 20} MiB; `max_answer_mib` in the model's settings "
        "allows more"
    )
