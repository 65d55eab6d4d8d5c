"""Rows of this box's sessions in the engine: written on change, at most one a second for each session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec

from clisup.errors import ClisupError
from clisup.fleet.agent.copying import sessions_of
from clisup.fleet.agent.daemon_link import DaemonLink, EventLines
from clisup.fleet.agent.records import SessionRecord, same_row, session_key
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.agent.table import Table
from clisup.fleet.engine import Bucket, Engine
from clisup.model.envelope import FRAME_BEGIN
from clisup.wire.results import SessionSummary

__all__ = ["Rows"]

EVERY_S = 1.0
"""Seconds between two rows of a session."""
ALL_S = 60.0
"""Seconds between two looks at all sessions, which find the deleted ones."""
TYPES = [
    "prompt_accepted",
    "turn_started",
    "turn_completed",
    "approval_requested",
    "approval_resolved",
    "session_init",
    "notice",
    "message",
]
"""Events after which a row may differ."""
COLUMNS = frozenset(SessionSummary.model_fields)
_ID = len(FRAME_BEGIN + b'{"session_id":"')


class Rows:
    """Rows of this box. `next_seqs` has the next seq of each session as of the last look.

    Unless the box is `alone` under its name, missing sessions may be those of the other box, and their rows stay.
    """

    def __init__(self, engine: Engine, table: Table, settings: AgentSettings, alone: Callable[[], bool]) -> None:
        self._bucket, self._table, self._settings, self._alone = Bucket(engine, "SESSIONS"), table, settings, alone
        self._socket = settings.daemon_socket
        self._dirty: set[str] = set()
        self.next_seqs: dict[str, int] = {}

    async def run(self) -> None:
        """Write rows until cancelled. Raises `WorldError` when the daemon ends or the engine is away."""
        async with DaemonLink.open(self._socket, "clisup-fleet-rows") as link:
            following = asyncio.create_task(self._follow())
            try:
                loop = asyncio.get_running_loop()
                whole = loop.time()
                while not following.done():
                    if loop.time() >= whole:
                        await self._look_at_all(link)
                        whole = loop.time() + ALL_S
                    await self._look_at_changed(link)
                    await asyncio.sleep(EVERY_S)
                await following
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        """Note the sessions with news."""
        lines = EventLines(self._socket, "clisup-fleet-rows")
        async with aclosing(lines.follow(None, types=TYPES, deltas=False)) as batches:
            async for batch in batches:
                self._dirty |= {_session_of(line) for line in batch if line.startswith(FRAME_BEGIN)}

    async def _look_at_all(self, link: DaemonLink) -> None:
        listed = {row["session_id"]: row async for row in sessions_of(link)}
        for id_, row in listed.items():
            await self._write(id_, row)
        known = self._table.rows(self._table.me) if self._alone() else ()
        for id_ in [id_ for id_ in known if id_ not in listed]:
            self.next_seqs.pop(id_, None)
            await self._put(id_, None)

    async def _look_at_changed(self, link: DaemonLink) -> None:
        for id_ in list(self._dirty):
            self._dirty.discard(id_)
            try:
                detail = await link.call("session/get", session_id=id_)
            except ClisupError as error:
                if error.kind != "session_not_found":
                    raise
                await self._put(id_, None)
            else:
                await self._write(id_, detail)

    async def _write(self, id_: str, row: dict[str, Any]) -> None:
        self.next_seqs[id_] = int(row["next_seq"])
        row = {name: value for name, value in row.items() if name in COLUMNS}
        if self._settings.fleet.share != "all":
            row |= {"title": None, "queue": []}  # both quote prompts
        if not same_row(self._table.rows(self._table.me).get(id_), row):
            await self._put(id_, row)

    async def _put(self, id_: str, row: dict[str, Any] | None) -> None:
        await self._bucket.put(session_key(self._table.me, id_), msgspec.json.encode(SessionRecord(row)))


def _session_of(line: bytes) -> str:
    return line[_ID : line.index(b'"', _ID)].decode()
