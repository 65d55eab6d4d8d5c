"""History of a session: its messages for the API, and their transcript in the worker's own home."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from clisup.stream_json.frames import now
from clisup.stream_json.transcript import Transcript, new_id, open_transcript
from clisup.worker import JsonObject
from clisup.worker.conversation import add_message, messages_of


class MessageHistory:
    """Messages of one session. The history writes each message to the transcript at once, an answer when it is complete."""

    def __init__(self, transcript: Transcript, cwd: str) -> None:
        self.session_id = transcript.session_id
        self.messages: list[JsonObject] = []
        self._transcript, self._cwd = transcript, cwd
        self._last: str | None = None

    def load(self) -> None:
        """Read the transcript."""
        entries = [entry for entry in self._transcript.entries() if not entry.get("isSidechain")]
        self.messages = messages_of(entries)
        self._last = next((entry["uuid"] for entry in reversed(entries) if entry.get("uuid")), None)

    def add_user(self, content: Sequence[Mapping[str, Any]]) -> None:
        """Add blocks of the user, or results of tools."""
        if content:
            self._add("user", {"role": "user", "content": [*content]})

    def add_answer(
        self, head: Mapping[str, Any], content: Sequence[Mapping[str, Any]], stop_reason: str | None
    ) -> None:
        """Add an answer of the model. An answer without content is no message."""
        if content:
            message = {"id": head.get("id"), "type": "message", "role": "assistant", "model": head.get("model")}
            self._add("assistant", {**message, "content": [*content], "stop_reason": stop_reason})

    def _add(self, role: str, message: JsonObject) -> None:
        add_message(self.messages, role, message["content"])
        own = new_id()
        self._transcript.append({
            "parentUuid": self._last, "isSidechain": False, "type": role, "message": message, "uuid": own,
            "timestamp": now(), "userType": "external", "cwd": self._cwd,
        })  # fmt: skip
        self._last = own


def open_history(cwd: str, *, new: str | None, resume: str | None) -> MessageHistory:
    """Return the history of a new or a resumed session. Raises `SessionInUse` or `UnknownSession`."""
    history = MessageHistory(open_transcript(home(os.environ), cwd, new=new, resume=resume), cwd)
    if resume is not None:
        history.load()
    return history


def home(env: Mapping[str, str]) -> str:
    """Return the worker's own directory: below XDG_STATE_HOME, else below HOME."""
    return f"{env.get('XDG_STATE_HOME') or env['HOME'] + '/.local/state'}/clisup-worker"
