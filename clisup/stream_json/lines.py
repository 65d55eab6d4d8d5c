"""Lines of JSON: each is written completely, and a line of stdin is read as claude reads it."""

from __future__ import annotations

import errno
import json
import os
import select
from collections.abc import Mapping
from typing import Any

__all__ = ["BadInput", "blocks_of", "encode_frame", "read_frame", "write_all"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class BadInput(Exception):
    """Line of stdin that is no message. As in claude, the process prints the text on stderr and exits with code 1."""


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


def read_frame(line: bytes) -> dict[str, Any]:
    """Return the object on a line, or an empty one for a line that claude ignores. Raises `BadInput`."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return {}
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"Error parsing streaming input line (type=unknown, {len(text)} chars): SyntaxError") from None
    return frame if isinstance(frame, dict) else {}


def blocks_of(frame: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of a user message. Raises `BadInput` for another role than `user`."""
    message = frame.get("message")
    message = message if isinstance(message, dict) else {}
    if message.get("role") != "user":
        raise BadInput(f"Error: Expected message role 'user', got '{message.get('role')}'")
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
