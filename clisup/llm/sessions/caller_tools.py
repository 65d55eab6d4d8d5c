"""Calls of the caller's tools, and chats parked for results between two calls of `complete`.

A call becomes known twice: by the turn's events (`TurnReader.calling`) and by the daemon's `tool/call`. The module matches both by
the model's id of the call, or else by name and input.

A parked chat keeps its session and its place in the turn. A next call takes the chat if its history stops at the same tool calls.
Other parked chats are closed: after the time of the calls, when the table is full, and at the end of trio's run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import trio

from clisup.client.aio_tools import ToolCall, ToolReply
from clisup.llm.answers import ModelName
from clisup.llm.histories import OpenRound, last_said
from clisup.llm.messages import ToolResultBlock, ToolUseBlock
from clisup.llm.serving import RunCall, reply_of
from clisup.llm.sessions.turn_reader import TurnReader
from clisup.llm.tools import Tool, ToolDefinition

BESIDE_S = 1.0
"""Seconds of a stream's wait for the call of a local tool in the same message. Some CLIs send such calls in sequence."""

WHOLE_S = 5.0
"""Seconds of a stream's wait for the end of a message after a call in the message. The connection may have lost the end."""

PARKED_MAX = 64
"""Most parked chats of this process. Another chat closes the oldest."""

_KEPT = 64
"""Kept replies of local tools, for repeated calls of the daemon: the daemon's limit of open calls in a session."""


class CallerCalls:
    """Tool calls of a session, waiting for the caller. The object calls `changed` for each new call and each end of a local tool."""

    def __init__(self, definitions: Iterable[ToolDefinition], *, tells_ends: bool) -> None:
        """`tells_ends`: the backend has the event `message_stop`."""
        waits_s = {definition.name: definition.waits_s for definition in definitions}
        self.names = frozenset(waits_s)
        self.waits_s = min(waits_s.values(), default=0.0)
        self.changed: Callable[[], None] = lambda: None
        self._tells_ends = tells_ends
        self._reader: TurnReader | None = None
        self._open: dict[str, tuple[ToolCall, float]] = {}  # the bridge's id -> the call and its time
        self._ids: dict[str, str] = {}  # the bridge's id -> the model's
        self._replies: dict[str, ToolReply] = {}  # by the model's id
        self._kept: OrderedDict[str, ToolReply] = OrderedDict()
        self._here: list[ToolCall] = []
        self._running, self._paused = 0, False
        self._news = trio.Event()

    # -- calls of the daemon

    def serve(self, run: RunCall) -> RunCall:
        """Return a function that answers every call of the session: the caller's calls here, others by `run`."""

        async def answer(call: ToolCall) -> ToolReply:
            return await (self.wait(call) if call.name in self.names else self.run(call, run))

        return answer

    async def wait(self, call: ToolCall) -> ToolReply:
        """Return the caller's result of a call. Wait until a prompt brings the result."""
        self._open[call.call_id] = call, trio.current_time()
        self._match()
        self._notify()
        try:
            while (reply := self._replies.get(self._ids.get(call.call_id, ""))) is None:
                await self._news.wait()
            return reply
        finally:
            del self._open[call.call_id]

    async def run(self, call: ToolCall, run: RunCall) -> ToolReply:
        """Run a local tool once for each call. The daemon repeats open calls when a parked chat continues."""
        if (kept := self._kept.get(call.call_id)) is not None:
            return kept
        while self._paused:  # parking the chat would cancel the tool
            await self._news.wait()
        self._here.append(call)
        self._running += 1
        try:
            reply = self._kept[call.call_id] = await run(call)
        finally:
            self._running -= 1
            self._notify()
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return reply

    # -- events of the turn

    def follow(self, reader: TurnReader) -> None:
        """Match calls with the events of this turn from now on."""
        self._reader, self._replies, self._here = reader, {}, []

    def bring(self, results: Mapping[str, ToolResultBlock]) -> None:
        """Answer the calls of these ids, now or when they arrive."""
        self._paused = False
        self._replies |= {id_: reply_of(result.content, result.is_error) for id_, result in results.items()}
        self._notify()

    def due(self) -> tuple[ToolUseBlock, ...]:
        """Return the calls at which the answer ends now, or nothing while the turn may continue without the caller.

        The daemon has sent at least one of the calls. A CLI that runs tools in sequence sends the others later, and their results
        wait in this object.
        """
        if self._match():
            self._notify()
        waiting, reader = self._waiting(), self._reader
        if reader is None or trio.current_time() < self._ready_at(waiting):
            return ()
        come = {self._ids[call_id] for call_id in waiting}
        return tuple(
            block
            for id_, block in reader.calling.items()
            if id_ not in self._replies and (id_ in come or not self._tells_ends or reader.is_whole(id_))
        )

    def pause(self) -> None:
        """Start no local tool until the results arrive."""
        self._paused = True

    @property
    def deadline(self) -> float:
        """Time of trio for the owner's next call of `due`."""
        return self._ready_at(self._waiting())

    def _waiting(self) -> list[str]:
        """Return the received calls with a match in the turn and without a result."""
        return [id_ for id_ in self._open if id_ in self._ids and self._ids[id_] not in self._replies]

    def _ready_at(self, waiting: Sequence[str]) -> float:
        if self._running or self._reader is None:
            return inf
        slack_s = {id_: self._slack_s(self._reader, self._ids[id_]) for id_ in waiting}
        return min((self._open[id_][1] + slack_s[id_] for id_ in waiting), default=inf)

    def _slack_s(self, reader: TurnReader, id_: str) -> float:
        if self._tells_ends and not reader.is_whole(id_):
            return WHOLE_S
        return BESIDE_S if any(not self._has_come(call) for call in reader.running.values()) else 0.0

    def _has_come(self, use: ToolUseBlock) -> bool:
        return any(
            call.tool_use_id == use.id or (call.name, call.input) == (use.name, use.input) for call in self._here
        )

    def _match(self) -> bool:
        """Find the model's id of each call. Return whether a match is new."""
        calling = self._reader.calling if self._reader is not None else {}
        found = False
        for call_id, (call, _) in self._open.items():
            if call_id in self._ids:
                continue
            free = [id_ for id_ in calling if id_ not in self._ids.values()]
            alike = (id_ for id_ in free if (calling[id_].name, calling[id_].input) == (call.name, call.input))
            id_ = call.tool_use_id if call.tool_use_id in free else next(alike, None)
            if id_ is not None:
                self._ids[call_id], found = id_, True
        return found

    def _notify(self) -> None:
        self._news.set()
        self._news = trio.Event()
        self.changed()


# -- parked chats -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoppedTurn:
    """Turn waiting for results: the daemon's answer to the prompt, the reader, the last read event, and the open calls."""

    accepted: Any
    reader: TurnReader
    seq: int
    calls: tuple[ToolUseBlock, ...]


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """Key of a parked chat, shared with the next call. Tool calls alone do not identify a chat: some CLIs reuse the ids of calls."""

    name: ModelName
    socket: str | None
    cwd: str
    system: str | None


@dataclass(eq=False, slots=True)
class ParkedChat:
    """Chat waiting for the next call. `close` ends the chat's session."""

    key: ParkedKey
    said: str
    session_id: str
    turn: StoppedTurn
    calls: CallerCalls
    tools: tuple[Tool, ...]
    close: Callable[[], Awaitable[None]]
    abandoned: bool = False
    _token: trio.lowlevel.TrioToken = field(default_factory=trio.lowlevel.current_trio_token)
    _over: trio.Event = field(default_factory=trio.Event)

    def fits(self, key: ParkedKey, stopped: OpenRound) -> bool:
        """Return whether this chat stopped at these calls."""
        calls = [(call.id, call.name, call.input) for call in stopped.calls]
        mine = [(call.id, call.name, call.input) for call in self.turn.calls]
        same = self.key == key and self.said == last_said(stopped.since)
        return same and all(call in calls for call in mine)

    def leave(self) -> None:
        """Wake the chat's task, from any thread."""
        try:
            self._token.run_sync_soon(self._over.set)
        except trio.RunFinishedError:
            pass


class ParkedChats:
    """Bounded table of parked chats, the oldest first, for all threads."""

    def __init__(self, most: int = PARKED_MAX) -> None:
        self._most = most
        self._chats: list[ParkedChat] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._chats)

    def park(self, chat: ParkedChat) -> None:
        """Keep a chat until the next call takes the chat, or until the chat's time is over."""
        with self._lock:
            self._chats.append(chat)
            old = self._chats[: -self._most]
            del self._chats[: -self._most]
        for other in old:
            other.abandoned = True
            other.leave()
        trio.lowlevel.spawn_system_task(self._keep, chat)

    def find(self, key: ParkedKey, stopped: OpenRound) -> ParkedChat | None:
        """Return the newest chat stopped at these calls."""
        with self._lock:
            return next((chat for chat in reversed(self._chats) if chat.fits(key, stopped)), None)

    def take(self, key: ParkedKey, stopped: OpenRound) -> ParkedChat | None:
        """Find the chat and remove the chat from the table. The caller owns the chat from now on."""
        chat = self.find(key, stopped)
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
        """Close the chat after its time. This is a system task of trio: the end of the run cancels the task."""
        try:
            with trio.move_on_after(chat.calls.waits_s):
                await chat._over.wait()
        finally:
            if self._remove(chat) or chat.abandoned:
                await _close_quietly(chat)


async def _close_quietly(chat: ParkedChat) -> None:
    try:
        await chat.close()
    except Exception:  # the error has no receiver, and in a system task an error ends the program
        return


PARKED = ParkedChats()
"""Parked chats of this process."""
