"""Lines of JSON on a descriptor, each written completely."""

from __future__ import annotations

import errno
import json
import os
import select
from typing import Any

__all__ = ["encode_frame", "write_all"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def encode_frame(frame: dict[str, Any]) -> bytes:
    """Return a frame's line without its newline. UTF-8 has no lone surrogates, so they are escaped."""
    text = _encode(frame)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(frame, separators=(",", ":")).encode()


def write_all(fd: int, data: bytes) -> bool:
    """Write all of `data`, and wait if the descriptor is full. Return False if the reader has closed its end."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EBADF, errno.EIO, errno.ECONNRESET):
                return False
            raise
    return True
