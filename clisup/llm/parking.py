"""Chats that wait for the caller's results between two calls of `complete`: a bounded table of this process.

A chat is parked with its session and the place in its turn. The next call whose history stops at the same tool calls takes it and
goes on. What nobody takes is closed: after the time of its calls, when the table is full, and when the run of trio ends that
parked it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from clisup.llm.caller_desk import CallerDesk
from clisup.llm.messages import ToolUseBlock
from clisup.llm.names import ModelName
from clisup.llm.reading import TurnReader
from clisup.llm.rounds import OpenRound, last_said
from clisup.llm.tools import Tool

__all__ = ["PARKED", "PARKED_MAX", "ParkedChat", "ParkedChats", "Place", "StoppedTurn"]

PARKED_MAX = 64
"""Chats that are parked at once in this process. One more closes the oldest."""


@dataclass(frozen=True, slots=True)
class StoppedTurn:
    """A turn that waits for results: what has read it, up to which event, and its open calls. `accepted` is the daemon's answer to its
    prompt.
    """

    accepted: Any
    reader: TurnReader
    seq: int
    calls: tuple[ToolUseBlock, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Circumstances that a call shares with the one that parked.

    Tool calls alone are not enough: some CLIs count their ids anew in each session.
    """

    name: ModelName
    socket: str | None
    cwd: str
    system: str | None


@dataclass(eq=False, slots=True)
class ParkedChat:
    """Chat that is parked. `close` ends its session."""

    place: Place
    said: str
    session_id: str
    turn: StoppedTurn
    desk: CallerDesk
    tools: tuple[Tool, ...]
    close: Callable[[], Awaitable[None]]
    abandoned: bool = False
    _token: trio.lowlevel.TrioToken = field(default_factory=trio.lowlevel.current_trio_token)
    _over: trio.Event = field(default_factory=trio.Event)

    def fits(self, place: Place, stopped: OpenRound) -> bool:
        """Return whether this chat stopped at these calls."""
        calls = [(call.id, call.name, call.input) for call in stopped.calls]
        mine = [(call.id, call.name, call.input) for call in self.turn.calls]
        same = self.place == place and self.said == last_said(stopped.since)
        return same and all(call in calls for call in mine)

    def leave(self) -> None:
        """Have its task look again; from any thread."""
        try:
            self._token.run_sync_soon(self._over.set)
        except trio.RunFinishedError:
            pass


class ParkedChats:
    """Parked chats, the oldest first. Several threads may use it."""

    def __init__(self, most: int = PARKED_MAX) -> None:
        self._most = most
        self._chats: list[ParkedChat] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._chats)

    def park(self, chat: ParkedChat) -> None:
        """Keep it until it is taken, or its time is over."""
        with self._lock:
            self._chats.append(chat)
            old = self._chats[: -self._most]
            del self._chats[: -self._most]
        for other in old:
            other.abandoned = True
            other.leave()
        trio.lowlevel.spawn_system_task(self._keep, chat)

    def find(self, place: Place, stopped: OpenRound) -> ParkedChat | None:
        """The chat that stopped at these calls; the newest, if there are several."""
        with self._lock:
            return next((chat for chat in reversed(self._chats) if chat.fits(place, stopped)), None)

    def take(self, place: Place, stopped: OpenRound) -> ParkedChat | None:
        """Find the chat and take it out: it is the caller's from now on."""
        chat = self.find(place, stopped)
        if chat is None or not self._remove(chat):
            return None
        chat.leave()
        return chat

    def _remove(self, chat: ParkedChat) -> bool:
        with self._lock:
            if chat not in self._chats:
                return False
            self._chats.remove(chat)
            return True

    async def _keep(self, chat: ParkedChat) -> None:
        """A task of trio's own, which the end of the run cancels."""
        try:
            with trio.move_on_after(chat.desk.waits_s):
                await chat._over.wait()
        finally:
            if self._remove(chat) or chat.abandoned:
                await _closed(chat)


async def _closed(chat: ParkedChat) -> None:
    """Bounded by `close` itself. An exception would end the program: nobody is there to be told."""
    try:
        await chat.close()
    except Exception:
        return


PARKED = ParkedChats()
"""Parked chats of this process."""
