"""Identity by content."""

import json
from hashlib import blake2b


def digest_bytes(data: bytes) -> str:
    """Return the 128-bit digest of *data* in hex."""
    return blake2b(data, digest_size=16).hexdigest()


def digest(value: object) -> str:
    """Return the digest of plain data; key order does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return digest_bytes(text.encode("ascii"))
