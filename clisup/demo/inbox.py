"""A live process's stdin: lines as they come, without a thread. Whoever waits for time to pass waits here."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, NamedTuple

from clisup.demo.args import BadArguments
from clisup.demo.signals import LONGEST_NAP_S, nap

__all__ = ["Inbox", "Message", "read_frame", "read_message"]

_CHUNK = 1 << 20
_PRIORITIES = ("now", "next", "later")


class Message(NamedTuple):
    """One user message. `text` is that of all its text blocks; `command` the slash command that its last one is, or empty."""

    uuid: str | None
    text: str
    images: int
    priority: str
    command: str


class Inbox:
    """The lines that have come and that nobody has taken. `ended` says that no more will come after them."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False
        self._rest: list[bytes] = []
        try:
            os.fstat(0)
        except OSError:
            self.ended = True

    def wait(self, seconds: float) -> None:
        """Until something has come, or for `seconds`: then `lines` holds what is whole of it."""
        if self.ended:
            nap(seconds)
            return
        while not self.ended and _comes(seconds):
            seconds = 0.0
            chunk = os.read(0, _CHUNK)
            self.ended = not chunk
            head, *more = chunk.split(b"\n")
            self._rest.append(head)
            if more:
                self.lines += [b"".join(self._rest), *more[:-1]]
                self._rest = [more[-1]]
        if self.ended and any(self._rest):
            self.lines.append(b"".join(self._rest))
            self._rest = []


def _comes(seconds: float) -> bool:
    """Is there something to read, now or within that time? Looked at in short waits, as `nap` does."""
    deadline = time.monotonic() + seconds
    while not select.select([0], [], [], max(0.0, min(deadline - time.monotonic(), LONGEST_NAP_S)))[0]:
        if time.monotonic() >= deadline:
            return False
    return True


def read_frame(line: bytes) -> dict[str, Any]:
    """The object on a line; empty for what claude ignores. Raises `BadArguments` for what ends claude."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return {}
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        raise BadArguments(
            f"Error parsing streaming input line (type=unknown, {len(text)} chars): SyntaxError"
        ) from None
    return frame if isinstance(frame, dict) else {}


def read_message(frame: dict[str, Any]) -> Message:
    """A user message. Raises `BadArguments` for another role than `user`, as claude does."""
    message = frame.get("message")
    message = message if isinstance(message, dict) else {}
    if message.get("role") != "user":
        raise BadArguments(f"Error: Expected message role 'user', got '{message.get('role')}'")
    content = message.get("content")
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blocks = [block for block in given if isinstance(block, dict)] if isinstance(given, list) else []
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    priority, uuid = frame.get("priority"), frame.get("uuid")
    return Message(
        uuid=uuid if isinstance(uuid, str) else None,
        text="\n".join(texts),
        images=sum(block.get("type") == "image" for block in blocks),
        priority=priority if priority in _PRIORITIES else "next",
        command=_command(texts[-1]) if texts else "",
    )


def _command(text: str) -> str:
    """The slash command, of those that the demo knows: the others reach the model, as claude's unknown ones do."""
    word = text.split(maxsplit=1)[0] if text.startswith("/") else ""
    return word if word == "/compact" else ""
