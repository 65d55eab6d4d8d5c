"""Calls of a program's tools that wait in a turn of a CLI, and their ids in answers.

A CLI waits in its tool for the result, so the turn waits, too. The program's next request brings the results. The id of a
call names the session, so that any process of the gateway finds the turn again.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping

import trio

from clisup.client.aio_tools import ToolCall, ToolReply
from clisup.doors.gateway.answers import encode
from clisup.llm.messages import ToolResultBlock, ToolUseBlock
from clisup.llm.serving import reply_of

__all__ = ["ParkedCalls", "call_id", "call_mark", "session_of_call"]

_OWN_ID = re.compile(r"(?:call|toolu)_([A-Za-z0-9_-]{22})([0-9a-f]{10})")


def call_id(prefix: str, session_id: str, tool_use_id: str) -> str:
    """Return the id of a call for the program: of 38 characters at most, with the session in it."""
    session = base64.urlsafe_b64encode(uuid.UUID(session_id).bytes).decode().rstrip("=")
    return f"{prefix}{session}{call_mark(tool_use_id)}"


def call_mark(tool_use_id: str) -> str:
    """Return the end of an id, which stands for the CLI's own id."""
    return hashlib.sha256(tool_use_id.encode("utf-8", "replace")).hexdigest()[:10]


def session_of_call(id_: str) -> tuple[str, str] | None:
    """Return the session of an id and its mark, or None for an id of another origin."""
    found = _OWN_ID.fullmatch(id_)
    if found is None:
        return None
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(found[1] + "=="))), found[2]


class ParkedCalls:
    """Open calls of one session, and the results that the program has brought. A result stays for a call that comes later."""

    def __init__(self) -> None:
        self._results: dict[str, ToolReply] = {}
        self._alike: dict[tuple[str, str], list[str]] = {}
        self._used: dict[str, str] = {}
        self._news = trio.Event()

    def bring(self, uses: Iterable[ToolUseBlock], results: Mapping[str, ToolResultBlock]) -> None:
        """Take the results of these calls of the model, by their ids at the CLI."""
        for use in uses:
            if use.id in results and use.id not in self._results:
                self._results[use.id] = reply_of(results[use.id].content, results[use.id].is_error)
                self._alike.setdefault((use.name, encode(use.input)), []).append(use.id)
        self._news.set()
        self._news = trio.Event()

    async def wait(self, call: ToolCall) -> ToolReply:
        """Return the result of a call. Wait until a request brings it."""
        while (reply := self._find(call)) is None:
            await self._news.wait()
        return reply

    def _find(self, call: ToolCall) -> ToolReply | None:
        """Return the result by the CLI's id. A CLI without ids gets the first unused result of the same call."""
        if call.tool_use_id is not None:
            return self._results.get(call.tool_use_id)
        used = self._used.get(call.call_id)
        if used is None:
            alike = self._alike.get((call.name, encode(call.input)), [])
            used = next((id_ for id_ in alike if id_ not in self._used.values()), None)
            if used is None:
                return None
            self._used[call.call_id] = used
        return self._results.get(used)
