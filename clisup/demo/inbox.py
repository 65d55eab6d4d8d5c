"""Standard input of a live process: its lines, the messages in them, and the queue of messages."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, NamedTuple

from clisup.demo.arguments import BadArguments
from clisup.demo.output import LONGEST_NAP_S, nap
from clisup.demo.tools import BackgroundTask

__all__ = ["Inbox", "MessageQueue", "UserMessage", "read_frame", "read_message"]

_CHUNK = 1 << 20


class UserMessage(NamedTuple):
    """User message. `text` has the text of all blocks; `command` is the slash command in the last one, or empty."""

    uuid: str | None
    text: str
    images: int
    command: str


class Inbox:
    """Lines that have come and are not handled yet. `ended` tells that no more will come."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False
        self._rest: list[bytes] = []
        try:
            os.fstat(0)
        except OSError:
            self.ended = True

    def wait(self, seconds: float) -> None:
        """Wait for input, `seconds` at most."""
        if self.ended:
            nap(seconds)
            return
        while not self.ended and _is_readable(seconds):
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


def _is_readable(seconds: float) -> bool:
    """Wait for input in short waits, as `nap` does."""
    deadline = time.monotonic() + seconds
    while not select.select([0], [], [], max(0.0, min(deadline - time.monotonic(), LONGEST_NAP_S)))[0]:
        if time.monotonic() >= deadline:
            return False
    return True


class MessageQueue:
    """Messages, and ended background tasks, that wait for their turn."""

    def __init__(self) -> None:
        self.items: list[UserMessage | BackgroundTask] = []

    def messages(self) -> list[UserMessage]:
        return [item for item in self.items if isinstance(item, UserMessage)]

    def take_turn(self) -> BackgroundTask | list[UserMessage]:
        """Remove and return what the next turn is for: an ended task, a command, or all messages before one of these."""
        first = self.items.pop(0)
        if isinstance(first, BackgroundTask):
            return first
        batch = [first]
        while self.items and not first.command:
            item = self.items[0]
            if isinstance(item, BackgroundTask) or item.command:
                break
            batch.append(item)
            self.items.pop(0)
        return batch

    def take_for_running_turn(self) -> list[UserMessage | BackgroundTask]:
        """Remove and return what the running turn can receive: everything but commands."""
        taken = [item for item in self.items if isinstance(item, BackgroundTask) or not item.command]
        self.items = [item for item in self.items if isinstance(item, UserMessage) and item.command]
        return taken


def read_frame(line: bytes) -> dict[str, Any]:
    """Return the object on a line; an empty one for a line that claude ignores. Raises `BadArguments` as claude does."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return {}
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        message = f"Error parsing streaming input line (type=unknown, {len(text)} chars): SyntaxError"
        raise BadArguments(message) from None
    return frame if isinstance(frame, dict) else {}


def read_message(frame: dict[str, Any]) -> UserMessage:
    """Parse a user message. Raises `BadArguments` for another role than `user`, as claude does."""
    message = frame.get("message")
    message = message if isinstance(message, dict) else {}
    if message.get("role") != "user":
        raise BadArguments(f"Error: Expected message role 'user', got '{message.get('role')}'")
    content = message.get("content")
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blocks = [block for block in given if isinstance(block, dict)] if isinstance(given, list) else []
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    uuid = frame.get("uuid")
    return UserMessage(
        uuid=uuid if isinstance(uuid, str) else None,
        text="\n".join(texts),
        images=sum(block.get("type") == "image" for block in blocks),
        command="/compact" if texts and texts[-1].startswith("/") and texts[-1].split()[0] == "/compact" else "",
    )
