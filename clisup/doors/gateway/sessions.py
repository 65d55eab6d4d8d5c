"""Sessions of the gateway: which end with their answer, which are kept, and the tools that they wait for.

Labels tell how a session ends, so that the next process of the gateway ends what a killed one has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from clisup.client.aio import AsyncClient
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools
from clisup.doors.gateway.parked import ParkedCalls
from clisup.doors.gateway.settings import GatewaySettings
from clisup.errors import ClisupError
from clisup.wire.results import SessionSummary

__all__ = ["CLOSING_S", "LABEL", "SWEEP_S", "GatewaySessions"]

LABEL = "clisup.gateway"
"""Label of each session. Its value is `delete`, `close` or `keep`, and the port of the gateway."""

SWEEP_S = 15.0
"""Seconds between two looks for sessions to end."""

CLOSING_S = 10.0
"""Seconds for the end of a session. The next look repeats what was not done."""

YOUNG_S = 60.0
"""Seconds for which a session may be without a prompt."""

_ENDS = ("delete", "close", "keep")
_LATE = "The program brought no result in time."


class GatewaySessions:
    """Sessions of this gateway. `run` ends those whose time is over."""

    def __init__(self, settings: GatewaySettings, client: Callable[[], Awaitable[AsyncClient]]) -> None:
        self._settings, self._client = settings, client
        self._parked: dict[str, tuple[ParkedCalls, trio.CancelScope]] = {}
        self._serving: dict[str, trio.Lock] = {}
        self._held: Counter[str] = Counter()
        self._nursery: trio.Nursery | None = None

    def labels(self, ends: str) -> dict[str, str]:
        """Return the labels of a session that ends in this way."""
        return {LABEL: f"{ends}:{self._settings.http.port}"}

    def end_of(self, labels: Mapping[str, str]) -> str:
        """Return how a session with these labels ends, or "" for one of others."""
        ends, _, port = labels.get(LABEL, "").partition(":")
        return ends if ends in _ENDS and port == str(self._settings.http.port) else ""

    # -- requests

    def hold(self, session_id: str) -> None:
        """Note that a request of this process needs the session."""
        self._held[session_id] += 1

    def release(self, session_id: str, ends: str, *, over: bool = False) -> None:
        """Note that a request needs the session no more. `over`: its turn has ended."""
        self._held[session_id] -= 1
        if self._held[session_id] > 0:
            return
        del self._held[session_id]
        if ends == "delete" or (ends == "close" and over):
            self._start(partial(self.end, session_id, delete=ends == "delete"))

    async def end(self, session_id: str, *, delete: bool) -> None:
        """Close a session, and with `delete` remove its record. What fails is left to the next look, or the next process."""
        if (found := self._parked.get(session_id)) is not None:
            found[1].cancel()
        with trio.move_on_after(CLOSING_S):
            try:
                session = (await self._client()).attach(session_id)
                await session.close()
                if delete:
                    await session.delete()
            except ClisupError:
                return

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(task)

    # -- tools

    def found(self, session_id: str) -> ParkedCalls | None:
        """Return the calls of a session whose tools are served here."""
        found = self._parked.get(session_id)
        return found[0] if found else None

    async def parked(self, client: AsyncClient, session_id: str) -> ParkedCalls | None:
        """Serve the tools of a session from now on, and return its calls; None for a session without tools."""
        lock = self._serving.setdefault(session_id, trio.Lock())
        async with lock:
            if session_id not in self._parked and self._nursery is not None:
                try:
                    await self._nursery.start(self._serve, client, session_id)
                except ClisupError as error:
                    if error.kind != "unsupported":
                        raise
        if not lock.statistics().tasks_waiting:
            self._serving.pop(session_id, None)
        return self.found(session_id)

    async def _serve(
        self, client: AsyncClient, session_id: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        calls, scope = ParkedCalls(), trio.CancelScope()

        async def run(call: ToolCall) -> ToolReply:
            with trio.move_on_after(self._settings.tool_timeout_s):
                return await calls.wait(call)
            self._start(partial(self.end, session_id, delete=False))
            return ToolReply(_LATE, is_error=True)

        status = _Status(task_status)
        self._parked[session_id] = calls, scope
        try:
            with scope:
                await serve_tools(client, session_id, run, task_status=status)
        except ClisupError:
            if not status.begun:
                raise  # to the request; later nobody waits for it
        finally:
            del self._parked[session_id]

    # -- the end of what nobody needs

    async def run(self) -> None:
        """Look for sessions to end, again and again. Ends when cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                try:
                    await self.sweep()
                except ClisupError:
                    pass  # the daemon is away; the next look does it
                await trio.sleep(SWEEP_S)

    async def sweep(self) -> None:
        """End all sessions whose time is over."""
        client = await self._client()
        for ends in _ENDS:
            for row in await client.sessions(labels=self.labels(ends)):
                if row.session_id not in self._held and self._is_over(row, ends):
                    await self.end(row.session_id, delete=ends == "delete" or not row.turns)
            for row in await client.sessions(labels=self.labels(ends), state="closed"):
                old = _rests_s(row) > self._settings.keep_s
                if row.session_id not in self._held and (ends == "delete" or old):
                    await self.end(row.session_id, delete=True)

    def _is_over(self, row: SessionSummary, ends: str) -> bool:
        """Tell whether an open session that no request needs has to end."""
        if ends == "delete":
            return True
        if row.turn_id is not None or row.queue:
            return False
        if not row.turns:
            return (row.age_s or 0.0) > YOUNG_S
        return ends == "close" or _rests_s(row) > self._settings.keep_s


def _rests_s(row: SessionSummary) -> float:
    """Return the seconds since the last event of a session."""
    return float((row.last_event or {}).get("age_s") or 0.0)


class _Status:
    """Status of a task that remembers whether the task has started."""

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status, self.begun = status, False

    def started(self, value: None = None) -> None:
        self.begun = True
        self._status.started()
