"""The daemon's hold on one keeper: the link, the order to end, and the word on how the run ended.

A keeper that cannot be reached is starting, busy, gone with a record, or dead without one. Its lock tells which.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Any, Protocol

import structlog
import trio

from clisup.backends.base import END_OF_INPUT, Reply
from clisup.daemon.runs.orphans import Orphans
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.locks import FileLock, lock_holder
from clisup.host.process.keepers import KeeperLink
from clisup.host.process.tree import sweep
from clisup.model.verdict import ExitRecord, exit_from_file
from clisup.policy.watchdog import Ladder
from clisup.store.session_dir import RunDir

__all__ = ["END_SLOT", "Leash", "LeashOwner", "stdin_id"]

RECONNECT_S = 0.05
LADDER_SLACK_S = 20.0  # a keeper that has not reported this long after its ladder's end is itself hung
DISK_SLACK_S = 60.0  # and one that cannot write is so much later: it gives a full disk that time (its FLUSH_S)
UNKNOWN_EXIT: dict[str, Any] = {"proto": 1, "exit_code": None, "signal": None, "reason": "unknown"}

_log = structlog.get_logger()


STDIN_RETRY_S = 0.5  # a keeper whose stdin queue is full has 64 MiB that the CLI has not read
_SLOTS = 4096
END_SLOT = _SLOTS - 1


def stdin_id(offset: int, slot: int = 0) -> int:
    """The id of a message to the CLI's stdin: the keeper writes each id once, and only ever a higher one.

    `offset` is the end of the stdout line that it answers (slot 0: a decoder's reply, `END_SLOT`: the end of its stdin), or
    after which the daemon said it of its own accord (the slots between). So a line that is decoded again after a restart
    gives the same id. What the daemon says is journaled with its id.
    """
    return offset * _SLOTS + slot + 1


def _number_of(said: tuple[int, str | None]) -> int:
    return said[0]


class LeashOwner(Protocol):
    """Who is told what the keeper says. None of these may block, but for a disk that takes nothing."""

    def grew(self) -> None:
        """There may be new bytes in a spool, or an exit."""

    async def take(self, out_size: int, err_size: int) -> None:
        """There are new bytes in a spool: so many are in each."""

    def spool_blocked(self, blocked: bool) -> None:
        """The keeper cannot write (or can again)."""

    def rearm(self) -> None:
        """A deadline may have come nearer."""

    def heard(self, number: int) -> None:
        """The CLI's stdin has every message up to this id."""


class Leash:
    """One run's keeper. `exited` is set once, with the exit record; everything the CLI said is then in the spools."""

    def __init__(
        self, owner: LeashOwner, run_dir: RunDir, session_id: str, run: int, storage: Storage, own: set[int],
        orphans: Orphans | None = None,
    ) -> None:  # fmt: skip
        """`own` gets the pids of keeper and CLI for as long as the keeper is held. `orphans` ends what a killed keeper leaves."""
        self._owner = owner
        self._dir = run_dir
        self._session_id = session_id
        self._run = run
        self._storage = storage
        self._orphans = orphans
        self._link: KeeperLink | None = None
        self._end_op: dict[str, Any] | None = None
        self._end_sent = False
        self._end_at: float | None = None  # the order waits until then
        self._says: list[tuple[int, str | None]] = []  # not yet written by the keeper, by id
        self._sent_to = 0  # the highest id that went over this link
        self._last_id = 0  # the highest id that the keeper has taken, or is to take
        self._greeted = trio.Event()
        self._in_order = trio.Event()
        self._news = trio.Event()
        self._hung_at: float | None = None
        self._hung = False
        self._slack_s = LADDER_SLACK_S
        self.keeper_pid: int | None = None
        self._own, self._pids = own, set[int]()
        self.exited: ExitRecord | None = None
        self._given_up = False

    @property
    def ending(self) -> bool:
        """The run has been ordered to end."""
        return self._end_op is not None

    @property
    def order_is_due(self) -> bool:
        """It is not held back any more for the sake of a CLI that was asked first."""
        return self._end_at is not None and self._end_at <= clock.monotonic()

    @property
    def unkillable(self) -> bool:
        """Keeper and CLI live on after a SIGKILL: somebody traces them, or the kernel waits for a disk."""
        return self._hung and self.exited is None

    @property
    def waits(self) -> bool:
        """It is to end, and is given its time to do what it was asked for."""
        return self.ending and not self.order_is_due

    @property
    def ladder(self) -> Ladder:
        """The steps of the order; empty before there is one."""
        return [(name, grace) for name, grace in self._end_op["ladder"]] if self._end_op else []

    def say(self, number: int, text: str | None) -> None:
        """Hand a message to the CLI's stdin (None: its end), exactly once; `talk` delivers it."""
        insort(self._says, (number, text), key=_number_of)
        self._last_id = max(self._last_id, number)
        self._news.set()

    def reply(self, replies: Sequence[Reply], end: int) -> None:
        """Say the decoder's replies to the line that ends there. Decoded again it gives the same ids, which the keeper takes once."""
        if text := "".join(reply for reply in replies if isinstance(reply, str)):
            self.say(stdin_id(end), text)
        if END_OF_INPUT in replies:
            self.say(stdin_id(end, END_SLOT), None)

    def in_order(self) -> None:
        """All that was said before is known again: from now on it may be delivered, lowest id first."""
        self._in_order.set()
        self._news.set()

    async def ready(self) -> None:
        """Wait until the daemon may say something of its own accord, or the run has ended."""
        await self._greeted.wait()
        await self._in_order.wait()

    def take_id(self, offset: int) -> int | None:
        """An id above all that the keeper has, for what the daemon says after the stdout line that ends at `offset`.

        None while that cannot be known (`ready` waits for it), and after the run's end.
        """
        if not (self._greeted.is_set() and self._in_order.is_set()) or self.exited is not None or self._given_up:
            return None
        self._last_id = max(self._last_id + 1, stdin_id(offset, 1))
        return self._last_id

    def give_up(self) -> None:
        """Nobody follows the run any longer: who waits to say something to it learns that it cannot."""
        self._given_up = True
        self._own -= self._pids
        self._greeted.set()
        self._in_order.set()

    async def talk(self) -> None:
        """Deliver what was said, in order, over whichever link there is. Until cancelled."""
        while True:
            self._news = trio.Event()
            if self._in_order.is_set():
                await self._send_says()
            await self._news.wait()

    async def _send_says(self) -> None:
        while (at := bisect_right(self._says, self._sent_to, key=_number_of)) < len(self._says):
            link = self._link
            if link is None:
                return  # `listen` brings the next one
            number, text = self._says[at]
            self._sent_to = number
            message = {"op": "eof", "id": number} if text is None else {"op": "stdin", "id": number, "data": text}
            failpoint("keeper.stdin.before")
            await link.send(message)
            failpoint("keeper.stdin.after")

    def _written(self, number: int) -> None:
        while self._says and self._says[0][0] <= number:
            self._says.pop(0)
        self._owner.heard(number)

    async def _refused(self, number: int, error: str) -> None:
        """A full queue takes it later; a CLI that has shut its stdin, or has left, never does."""
        if error == "full":
            await trio.sleep(STDIN_RETRY_S)
            self._sent_to = min(self._sent_to, number - 1)
            self._news.set()
        else:
            self._says.clear()

    def order_end(self, reason: str, ladder: Ladder, *, after_s: float = 0) -> None:
        """The keeper shall end the run, in `after_s` seconds; `press` tells it. A later order only shortens an earlier one."""
        now = clock.monotonic()
        self._end_op = {"op": "end", "ladder": [list(step) for step in ladder], "reason": reason}
        self._end_sent = False
        self._end_at = now + after_s
        self._hung_at = now + after_s + sum(grace for _, grace in ladder) + self._slack_s
        self._owner.rearm()

    def _blocked(self, blocked: bool) -> None:
        """Its disk takes no more, or does again. What it was given in addition it keeps once it was ordered to end."""
        if blocked and self._slack_s == LADDER_SLACK_S:
            self._slack_s += DISK_SLACK_S
            self._hung_at = None if self._hung_at is None else self._hung_at + DISK_SLACK_S
        elif not blocked and not self.ending:
            self._slack_s = LADDER_SLACK_S
        self._owner.spool_blocked(blocked)

    def withdraw_order(self) -> None:
        """The CLI did in time what it was asked for, and the run need not end. An order that is out stays."""
        if self._end_op is not None and not self._end_sent and not self.order_is_due:
            self._end_op = self._end_at = self._hung_at = None
            self._owner.rearm()

    @property
    def press_at(self) -> float | None:
        """When `press` is due again, once there is an order."""
        waits = self._end_at is not None and self._end_at > clock.monotonic()
        return self._end_at if waits else self._hung_at

    async def press(self) -> None:
        """Hand a due order to end to the keeper; one that does not even then report an end is killed with its CLI."""
        now = clock.monotonic()
        due = self._end_op is not None and not self._end_sent and self._end_at is not None and now >= self._end_at
        if self._link is not None and due:
            failpoint("keeper.order.before")
            # It may hang with a message for its CLI half read: the order would wait behind that for ever.
            with trio.move_on_after(max(0.0, (self._hung_at or now) - now)):
                self._end_sent = await self._link.send(self._end_op or {})
            failpoint("keeper.order.after")
        if self._hung_at is not None and clock.monotonic() >= self._hung_at and self.exited is None:
            _log.error("keeper hung", session=self._session_id, run=self._run)
            self._hung_at = clock.monotonic() + LADDER_SLACK_S
            await self._sweep(lock_holder(self._dir.lock))
            self._hung = True

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
            self._pids |= {int(pid) for name in ("keeper_pid", "pid") if (pid := self._link.hello.get(name))}
            self._own |= self._pids
            self._end_sent = False
            written = int(self._link.hello.get("last_id") or 0)
            self._last_id = max(self._last_id, written, int(self._link.hello.get("last_taken") or 0))
            self._written(written)
            self._sent_to = 0
            self._greeted.set()
            self._news.set()
            self._owner.rearm()
            self._blocked(bool(self._link.hello.get("blocked")))
            self._owner.grew()
            while messages := await self._link.receive():
                for message in messages:
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
        if "ack" in message:
            self._written(int(message["ack"]))
        elif "nack" in message:
            await self._refused(int(message["nack"]), str(message.get("error")))
        match message.get("push"):
            case "grew":
                await self._owner.take(int(message["out"]), int(message["err"]))
                if self._link is not None:
                    failpoint("keeper.ack.before")
                    await self._link.seen()
                    failpoint("keeper.ack.after")
            case "blocked" | "unblocked" as push:
                self._blocked(push == "blocked")
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
        killed = await sweep(self._session_id, self._run, keeper=keeper, cgroup=cgroup)
        return killed + (await self._orphans.end() if self._orphans is not None else [])

    def _gone(self, record: ExitRecord) -> None:
        self.exited = record
        self._own -= self._pids
        self._greeted.set()
        self._in_order.set()
        self._owner.grew()
