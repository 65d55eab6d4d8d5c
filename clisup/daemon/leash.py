"""The daemon's hold on one keeper: the link, the order to end, and the word on how the run ended.

A keeper that cannot be reached is starting, busy, gone with a record, or dead without one. Its lock tells which.
"""

from __future__ import annotations

from typing import Any, Protocol

import structlog
import trio

from clisup.core.ladder import Ladder
from clisup.core.verdict import ExitRecord, exit_from_file
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.keepers import KeeperLink
from clisup.host.locks import FileLock, lock_holder
from clisup.host.process_tree import sweep
from clisup.host.session_dir import RunDir

__all__ = ["Leash", "LeashOwner"]

RECONNECT_S = 0.05
LADDER_SLACK_S = 20.0  # a keeper that has not reported this long after its ladder's end is itself hung
UNKNOWN_EXIT: dict[str, Any] = {"proto": 1, "exit_code": None, "signal": None, "reason": "unknown"}

_log = structlog.get_logger()


class LeashOwner(Protocol):
    """Who is told what the keeper says. None of these may block."""

    def grew(self) -> None:
        """There are new bytes in a spool, or an exit."""

    def spool_blocked(self, blocked: bool) -> None:
        """The keeper cannot write (or can again)."""

    def rearm(self) -> None:
        """A deadline may have come nearer."""


class Leash:
    """One run's keeper. `exited` is set once, with the exit record; everything the CLI said is then in the spools."""

    def __init__(self, owner: LeashOwner, run_dir: RunDir, session_id: str, run: int, storage: Storage) -> None:
        self._owner = owner
        self._dir = run_dir
        self._session_id = session_id
        self._run = run
        self._storage = storage
        self._link: KeeperLink | None = None
        self._end_op: dict[str, Any] | None = None
        self._end_sent = False
        self.hung_at: float | None = None
        self.keeper_pid: int | None = None
        self.exited: ExitRecord | None = None

    @property
    def ending(self) -> bool:
        """The run has been ordered to end."""
        return self._end_op is not None

    @property
    def ladder(self) -> Ladder:
        """The steps of the order; empty before there is one."""
        return [(name, grace) for name, grace in self._end_op["ladder"]] if self._end_op else []

    def order_end(self, reason: str, ladder: Ladder) -> None:
        """The keeper shall end the run; `press` tells it. A later order only shortens an earlier one."""
        self._end_op = {"op": "end", "ladder": [list(step) for step in ladder], "reason": reason}
        self._end_sent = False
        self.hung_at = clock.monotonic() + sum(grace for _, grace in ladder) + LADDER_SLACK_S
        self._owner.rearm()

    async def press(self) -> None:
        """Hand the order to end to the keeper; one that does not even then report an end is killed with its CLI."""
        if self._link is not None and self._end_op is not None and not self._end_sent:
            failpoint("keeper.order.before")
            self._end_sent = await self._link.send(self._end_op)
            failpoint("keeper.order.after")
        if self.hung_at is not None and clock.monotonic() >= self.hung_at and self.exited is None:
            _log.error("keeper hung", session=self._session_id, run=self._run)
            self.hung_at = clock.monotonic() + LADDER_SLACK_S
            await self._sweep(lock_holder(self._dir.lock))

    async def listen(self) -> None:
        """Hold the link until the run has ended."""
        while self.exited is None:
            try:
                self._link = await KeeperLink.connect(self._dir.path)
            except (OSError, WorldError):
                await self._unreachable()
                continue
            failpoint("keeper.hello")
            self.keeper_pid = self._link.hello.get("keeper_pid")
            self._end_sent = False
            self._owner.rearm()
            self._owner.spool_blocked(bool(self._link.hello.get("blocked")))
            self._owner.grew()
            async for message in self._link.messages():
                await self._heed(message)
            await self.aclose()
            if self.exited is None:
                await self._unreachable()

    async def aclose(self) -> None:
        """End the conversation. A keeper whose run is over waits for this before it leaves."""
        if self._link is not None:
            link, self._link = self._link, None
            await link.aclose()

    async def _heed(self, message: dict[str, Any]) -> None:
        failpoint("keeper.push")
        match message.get("push"):
            case "grew":
                self._owner.grew()
                if self._link is not None:
                    failpoint("keeper.ack.before")
                    await self._link.send({"op": "seen"})
                    failpoint("keeper.ack.after")
            case "blocked" | "unblocked" as push:
                self._owner.spool_blocked(push == "blocked")
            case "exited":
                self._gone(exit_from_file(message.get("exit")))

    async def _unreachable(self) -> None:
        try:
            with self._storage.watched():
                await self._ask_its_files()
        except (OSError, WorldError):  # a bad disk has no answer yet
            await trio.sleep(STORAGE_RETRY_S)

    async def _ask_its_files(self) -> None:
        if (record := self._dir.exit_record()) is not None:
            self._gone(exit_from_file(record))
        elif lock_holder(self._dir.lock) is None:
            await self._declare_dead()
        else:
            await trio.sleep(RECONNECT_S)

    async def _declare_dead(self) -> None:
        """The keeper is gone without an exit record: take its lock, end what it left behind, write the record in its place."""
        lock = FileLock(self._dir.lock)
        if lock.acquire() is not None:
            return  # it was only starting
        try:
            record = self._dir.exit_record()
            if record is None:
                record = {**UNKNOWN_EXIT, "survivors": await self._sweep()}
                failpoint("dead.before")
                self._dir.declare_dead(record)
            self._gone(exit_from_file(record))
        finally:
            lock.release()

    async def _sweep(self, keeper: int | None = None) -> list[dict[str, Any]]:
        cgroup = self._dir.intent().get("cgroup")
        return await sweep(self._session_id, self._run, keeper=keeper, cgroup=cgroup)

    def _gone(self, record: ExitRecord) -> None:
        self.exited = record
        self._owner.grew()
