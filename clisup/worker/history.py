"""A session's messages as the API is to get them again, and their place on disk: claude's transcripts in the worker's own home."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clisup.stream_json.transcript import Transcript, new_id, open_transcript

__all__ = ["History", "fold", "home", "open_history"]

Message = dict[str, Any]
_LOST = "The tool's result was lost: the process ended before it came."


class History:
    """The messages of one session. Each is written as it comes: an answer when it is whole."""

    def __init__(self, transcript: Transcript, cwd: str) -> None:
        self.session_id = transcript.session_id
        self.messages: list[Message] = []
        self.pending: list[Mapping[str, Any]] = []
        """Results of tools that go before what the user says next: other calls of the same answer are the caller's to run."""
        self._transcript, self._cwd = transcript, cwd
        self._last: str | None = None

    def load(self) -> None:
        """Read what was said before."""
        entries = [entry for entry in self._transcript.entries() if not entry.get("isSidechain")]
        self.messages = fold(entries)
        self._last = next((entry["uuid"] for entry in reversed(entries) if entry.get("uuid")), None)

    def add_user(self, content: Sequence[Mapping[str, Any]]) -> None:
        """Add what the user said, or what tools have answered."""
        pending, self.pending = self.pending, []
        self._add("user", {"role": "user", "content": [*pending, *content]})

    def add_answer(
        self, head: Mapping[str, Any], content: Sequence[Mapping[str, Any]], stop_reason: str | None
    ) -> None:
        """Add an answer of the model. One without content is no message."""
        if content:
            message = {"id": head.get("id"), "type": "message", "role": "assistant", "model": head.get("model")}
            self._add("assistant", {**message, "content": content, "stop_reason": stop_reason})

    def _add(self, role: str, message: Message) -> None:
        self.messages = fold([{"type": role, "message": message}], self.messages)
        own = new_id()
        self._transcript.append({
            "parentUuid": self._last, "isSidechain": False, "type": role, "message": message, "uuid": own,
            "timestamp": _now(), "userType": "external", "cwd": self._cwd,
        })  # fmt: skip
        self._last = own


def open_history(cwd: str, *, new: str | None, resume: str | None) -> History:
    """Return a new session's history, or that of one that goes on. Raises `SessionInUse` or `UnknownSession`."""
    history = History(open_transcript(home(os.environ), cwd, new=new, resume=resume), cwd)
    if resume is not None:
        history.load()
    return history


def home(env: Mapping[str, str]) -> str:
    """Return the worker's own directory: below XDG_STATE_HOME, else below HOME."""
    return f"{env.get('XDG_STATE_HOME') or env['HOME'] + '/.local/state'}/clisup-worker"


def fold(entries: Iterable[Mapping[str, Any]], before: Iterable[Message] = ()) -> list[Message]:
    """Return messages as an API takes them: roles in turns, and a result for each call. Pure.

    A process that was killed leaves calls without results: they get one that says so.
    """
    messages = list(before)
    for entry in entries:
        role, message = entry.get("type"), entry.get("message")
        if role not in ("user", "assistant") or not isinstance(message, Mapping):
            continue
        content = _blocks(message.get("content"))
        if role == "user" and messages:
            content = [*_missing(messages[-1], content), *content]
        if not content:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1] = {"role": role, "content": [*messages[-1]["content"], *content]}
        else:
            messages.append({"role": role, "content": content})
    return messages


def _missing(last: Message, content: list[Message]) -> list[Message]:
    if last["role"] != "assistant":
        return []
    given = {block.get("tool_use_id") for block in content}
    called = [block["id"] for block in last["content"] if block["type"] == "tool_use"]
    return [
        {"type": "tool_result", "tool_use_id": id_, "content": _LOST, "is_error": True}
        for id_ in called
        if id_ not in given
    ]


def _blocks(content: Any) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [
        block
        for block in content or ()
        if isinstance(block, dict) and not (block.get("type") == "text" and not str(block.get("text", "")).strip())
    ]


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
