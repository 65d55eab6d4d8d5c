"""Connection of the pages to the daemon: calls, the board of all sessions, and actions in the name of a browser's token."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from clisup.cli.top.model import Board
from clisup.cli.views.terminal import clip
from clisup.client.aio import AsyncClient, open_client
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.http.link import ANSWER_S, RETRY_S, ClientLink, daemon_away
from clisup.web.access.tokens import WebToken
from clisup.web.cost_book import CostBook

__all__ = ["ANSWER_S", "PageLink", "actor_name", "last_sentence"]

TICK_S = 1.0
"""Seconds between two looks at the daemon while a live page shows all sessions."""

_BOARD_EVENTS = ["message", "prompt_accepted", "turn_started", "turn_completed", "approval_requested", "approval_resolved",
                 "tool_use", "notice"]  # fmt: skip
_SAID_CHARS = 200
_LOOKED_UP = 20
_LOOKED_BACK = 500


class PageLink(ClientLink):
    """One client for all pages. `version` grows with each change of the board, and `changed` wakes the live pages.

    The `listener` gets each event, too.
    """

    def __init__(self, path: str | None) -> None:
        super().__init__(path, "clisup-web", self._follow_board)
        self.board = Board()
        self.said: dict[str, str] = {}
        self.version = 0
        self.listener: Callable[[JsonObject], None] | None = None
        self.costs = CostBook(self.client)
        self._changed = trio.Event()
        self._stale = trio.Event()
        self._watchers = 0
        self._refreshing = trio.Lock()

    async def _follow_board(self, client: AsyncClient) -> None:
        """Keep the board up to date while a live page shows it."""
        cursor: int | dict[str, int] | None = None
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(self._tick)
            while True:
                follower = client.subscribe("*", cursor, types=_BOARD_EVENTS, deltas=False)
                try:
                    async for event in follower:
                        self._take(event)
                except ClisupError as error:
                    cursor = None if error.kind == "invalid_params" else follower.cursor
                await trio.sleep(RETRY_S)

    def _take(self, event: JsonObject) -> None:
        if self.board.take_event(event, time.monotonic()):
            self._stale.set()
        if event["type"] == "message" and (said := last_sentence(event)):
            self.said[event["session_id"]] = said
        if self.listener is not None:
            self.listener(event)

    async def _tick(self) -> None:
        while True:
            with trio.move_on_after(TICK_S):
                await self._stale.wait()
            self._stale = trio.Event()
            if self._watchers:
                try:
                    await self.refresh()
                except ClisupError:
                    self.board.connected = False
                    self._tell()

    def _tell(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()

    async def refresh(self) -> Board:
        """Ask the daemon for its status and the pending approvals. Raises `ClisupError`."""
        async with self._refreshing:
            status = await self.call("daemon/status")
            approvals = await self.call("approval/list")
            self.board.take_status(status, time.monotonic())
            self.board.take_approvals(approvals["approvals"])
            self.board.connected = True
            known = {row["session_id"]: row for row in status["sessions"]}
            self.said = {id_: text for id_, text in self.said.items() if id_ in known}
            for row in [row for id_, row in known.items() if id_ not in self.said][:_LOOKED_UP]:
                self.said[row["session_id"]] = await self._last_said(row)
            self._tell()
            return self.board

    async def _last_said(self, row: JsonObject) -> str:
        """Return what the model said last before this process heard of the session, or ""."""
        after = max(0, row["next_seq"] - 1 - _LOOKED_BACK)
        page = await self.call(
            "session/events", session_id=row["session_id"], after_seq=after, types=["message"], limit=_LOOKED_BACK
        )
        return next((said for event in reversed(page["events"]) if (said := last_sentence(event))), "")

    async def next_version(self, seen: int) -> None:
        """Wait until the board has changed since the version `seen`."""
        self._watchers += 1
        try:
            while self.version == seen:
                await self._changed.wait()
        finally:
            self._watchers -= 1

    async def call(self, method: str, /, **params: Any) -> Any:
        """Call the daemon. Raises `WorldError(daemon_not_running)` if it does not answer within `ANSWER_S`."""
        with trio.move_on_after(ANSWER_S):
            await self._connected.wait()
            assert self._client is not None
            return await self._client.call(method, **params)
        raise daemon_away()

    @asynccontextmanager
    async def acting(self, token: WebToken) -> AsyncIterator[AsyncClient]:
        """Connect in the name of a token: the journal names it as the actor. Raises `ClisupError`."""
        async with open_client(self.path, name=actor_name(token)) as client:
            yield client


def last_sentence(event: JsonObject) -> str:
    """Return the text of a `message` on one line, cut, or "" for one of a sub-agent or without text."""
    if event.get("parent_tool_use_id"):
        return ""
    texts = [str(block.get("text") or "") for block in event.get("blocks") or () if block["kind"] == "text"]
    return clip(" ".join(texts).strip()[-4000:], _SAID_CHARS)


def actor_name(token: WebToken) -> str:
    """Return the name by which the journal knows a token."""
    return re.sub(r"[^\w .:/@+-]", "_", f"clisup-web:{token.name}")[:64]
