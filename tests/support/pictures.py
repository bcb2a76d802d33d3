"""Small pictures of one colour, for tests of prompts that show something."""

import base64
import struct
import zlib


def png(red: int, green: int, blue: int) -> bytes:
    """A PNG of 4 × 4 pixels in this colour."""
    rows = (b"\0" + bytes([red, green, blue]) * 4) * 4

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


RED, BLUE = png(255, 0, 0), png(0, 0, 255)
PDF = b"%PDF-1.4\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF\n"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64(data)}"
