"""Small real images, as blocks of a prompt."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

__all__ = ["GIF", "PNG", "PNG_BASE64", "image", "text"]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int) -> bytes:
    """A red rectangle."""
    rows = (b"\0" + b"\xff\0\0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


PNG = _png(2, 2)
PNG_BASE64 = base64.b64encode(PNG).decode()
GIF = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x00\x00\x00\x00\x00"
    b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)


def image(data: bytes = PNG, media_type: str = "image/png") -> dict[str, Any]:
    """An image block."""
    return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}


def text(words: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": words}
