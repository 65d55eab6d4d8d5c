"""Sums of the turns of all sessions, read from the daemon's journals once and then kept up to date."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime

import trio

from clisup.client.aio import AsyncClient
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.web.views.cost import EVENTS, SessionSpending, window

__all__ = ["LIVE_S", "MOST_SESSIONS", "CostBook", "today"]

MOST_SESSIONS = 2000
"""Sessions that count at most: open ones, then the newest closed ones."""

LIVE_S = 5.0
"""Least seconds between two looks at the daemon for the cost."""

_PAGE = 1000


class CostBook:
    """Rows and sums of the sessions. `unread` counts sessions with further events, and `more` tells
    whether there are sessions beyond the limit."""

    def __init__(self, client: Callable[[], Awaitable[AsyncClient]]) -> None:
        self.rows: dict[str, JsonObject] = {}
        self.spending: dict[str, SessionSpending] = {}
        self.unread = 0
        self.more = False
        self._client = client
        self._lock = trio.Lock()
        self._read_at = -LIVE_S

    async def refresh(self, within_s: float, session_id: str = "") -> None:
        """Read what is new, for about `within_s`. `session_id` is read even without a turn on the page's days.

        Raises `ClisupError`.
        """
        async with self._lock:
            known = not session_id or session_id in self.spending
            if known and not self.unread and trio.current_time() - self._read_at < LIVE_S:
                return
            client = await self._client()
            await self._list(client)
            first = window(today())[0].isoformat()
            stale = [row for row in self.rows.values() if self._is_stale(row, first, session_id)]
            self.unread = len(stale)
            with trio.move_on_after(within_s):
                for row in stale:
                    await self._read(client, row)
                    self.unread -= 1
            self._read_at = trio.current_time()

    async def _list(self, client: AsyncClient) -> None:
        """Read the rows: open sessions, then closed ones, the newest first."""
        rows: list[JsonObject] = []
        wanted: list[JsonObject] = [{}, {"state": "closed"}]
        while wanted and len(rows) < MOST_SESSIONS:
            page = await client.call("session/list", limit=_PAGE, **wanted[0])
            rows += page["sessions"]
            if page["next_cursor"]:
                wanted[0]["cursor"] = page["next_cursor"]
            else:
                del wanted[0]
        self.rows, self.more = {row["session_id"]: row for row in rows}, bool(wanted)
        self.spending = {id_: kept for id_, kept in self.spending.items() if id_ in self.rows}

    def _is_stale(self, row: JsonObject, first: str, session_id: str) -> bool:
        kept = self.spending.get(row["session_id"])
        if kept is not None:
            return kept.seq + 1 < int(row["next_seq"])
        last = str((row.get("last_event") or {}).get("ts") or "")
        return bool(row["turns"]) and (last >= first or row["session_id"] == session_id)

    async def _read(self, client: AsyncClient, row: JsonObject) -> None:
        session_id = row["session_id"]
        kept = self.spending.setdefault(session_id, SessionSpending(row["backend"], row.get("model") or ""))
        while kept.seq + 1 < int(row["next_seq"]):
            try:
                page = await client.call(
                    "session/events", session_id=session_id, after_seq=kept.seq, types=EVENTS, limit=_PAGE
                )
            except ClisupError as error:
                if error.kind != "session_not_found":
                    raise
                return
            for event in page["events"]:
                kept.take(event)
            if page["next_seq"] - 1 <= kept.seq:
                return
            kept.seq = page["next_seq"] - 1


def today() -> date:
    """Return the day in UTC."""
    return datetime.now(UTC).date()
