"""Calls of a session's tools that the caller runs: they wait here until the next prompt brings their results.

A call is known twice: by the turn's events (`TurnReader.calling`) and by the daemon's `tool/call`. Both name the model's id of it,
or else have the same name and input.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf

import trio

from clisup.client.aio_tools import ToolCall, ToolReply
from clisup.llm.messages import ToolResultBlock, ToolUseBlock
from clisup.llm.reading import TurnReader
from clisup.llm.replies import reply_of
from clisup.llm.tools import ToolDefinition

__all__ = ["BESIDE_S", "WHOLE_S", "CallerDesk"]

BESIDE_S = 1.0
"""Seconds that a stream waits for the call of a tool that runs here, of which the same message told. A CLI that runs its tools one after
the other sends it later."""

WHOLE_S = 5.0
"""Seconds that a stream waits for the end of a message whose call has come already. Such an end may be lost with its connection."""

_KEPT = 64
"""Replies of tools that run here, kept for a daemon that asks again: as many as it has calls open in a session."""


class CallerDesk:
    """The calls of one session. `changed` is called when a call comes, or a tool that runs here has ended."""

    def __init__(self, definitions: Iterable[ToolDefinition], *, tells_ends: bool) -> None:
        """`tells_ends`: the backend has the event `message_stop`."""
        waits_s = {definition.name: definition.waits_s for definition in definitions}
        self.names = frozenset(waits_s)
        self.waits_s = min(waits_s.values(), default=0.0)
        self.changed: Callable[[], None] = lambda: None
        self._tells_ends = tells_ends
        self._reader: TurnReader | None = None
        self._open: dict[str, tuple[ToolCall, float]] = {}  # by the bridge's id; with the time at which it came
        self._ids: dict[str, str] = {}  # the bridge's id -> the model's
        self._replies: dict[str, ToolReply] = {}  # by the model's id
        self._kept: OrderedDict[str, ToolReply] = OrderedDict()
        self._here: list[ToolCall] = []
        self._running, self._paused = 0, False
        self._news = trio.Event()

    # -- what the daemon tells

    async def wait(self, call: ToolCall) -> ToolReply:
        """Return the caller's result of a call, once a prompt has brought it."""
        self._open[call.call_id] = call, trio.current_time()
        self._match()
        self._stir()
        try:
            while (reply := self._replies.get(self._ids.get(call.call_id, ""))) is None:
                await self._news.wait()
            return reply
        finally:
            del self._open[call.call_id]

    async def run(self, call: ToolCall, work: Callable[[], Awaitable[ToolReply]]) -> ToolReply:
        """Run a tool of this process, once for each call: a parked chat is served again, and then asked again."""
        if (kept := self._kept.get(call.call_id)) is not None:
            return kept
        while self._paused:  # it would be cut off where the chat is parked
            await self._news.wait()
        self._here.append(call)
        self._running += 1
        try:
            reply = self._kept[call.call_id] = await work()
        finally:
            self._running -= 1
            self._stir()
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return reply

    # -- what the turn tells

    def follow(self, reader: TurnReader) -> None:
        """Match calls with the events of this turn from now on."""
        self._reader, self._replies, self._here = reader, {}, []

    def bring(self, results: Mapping[str, ToolResultBlock]) -> None:
        """Answer the calls of these ids, now or when they come."""
        self._paused = False
        self._replies |= {id_: reply_of(result.content, result.is_error) for id_, result in results.items()}
        self._stir()

    def due(self) -> tuple[ToolUseBlock, ...]:
        """Return the calls at which the answer ends now: nothing goes on before the caller has answered. Empty: not yet.

        One of them at least has come from the daemon. A CLI that runs its tools one after the other sends the others later; their
        results wait here.
        """
        if self._match():
            self._stir()
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
        """Let no tool begin here before the results come."""
        self._paused = True

    @property
    def deadline(self) -> float:
        """Time of trio at which `due` has to be asked again, if nothing comes before."""
        return self._ready_at(self._waiting())

    def _waiting(self) -> list[str]:
        """Return calls that have come, are known to the turn, and have no result."""
        return [id_ for id_ in self._open if id_ in self._ids and self._ids[id_] not in self._replies]

    def _ready_at(self, waiting: Sequence[str]) -> float:
        """Time at which the answer ends, by what is known now."""
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
        """Find the model's id of each call that has come. Return whether one was found."""
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

    def _stir(self) -> None:
        self._news.set()
        self._news = trio.Event()
        self.changed()
