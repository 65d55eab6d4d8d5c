"""Link of the daemon to one keeper: messages for the CLI's stdin, the order to end, and the exit record.

An unreachable keeper is starting, busy, gone with an exit record, or dead without a record. Record and lock show the case.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from clisup.backends.base import END_OF_INPUT, Reply
from clisup.daemon.journal.storage import STORAGE_RETRY_S, Storage
from clisup.daemon.runs.leftovers import keeper_of
from clisup.daemon.runs.orphans import Orphans
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.failpoints import ARMED, failpoint
from clisup.host.locks import FileLock
from clisup.host.log import event_logger
from clisup.host.process.keepers import KeeperConnection
from clisup.host.process.tree import sweep
from clisup.model.verdict import ExitRecord, exit_from_file
from clisup.policy.watchdog import Ladder
from clisup.store.session_dir import RunDir

__all__ = ["END_SLOT", "KeeperLink", "stdin_id"]

RECONNECT_S = 0.05
LADDER_SLACK_S = 20.0  # after the end of the ladder: a keeper without a report by then hangs
DISK_SLACK_S = 60.0  # more for a keeper that cannot write: the keeper's FLUSH_S for a full disk
STDIN_RETRY_S = 0.5  # a keeper with a full stdin queue has 64 MiB that the CLI has not read
UNKNOWN_EXIT: dict[str, Any] = {"proto": 1, "exit_code": None, "signal": None, "reason": "unknown"}
_SLOTS = 4096
END_SLOT = _SLOTS - 1

_log = event_logger()


def stdin_id(offset: int, slot: int = 0) -> int:
    """Return the id of a message to the CLI's stdin. The keeper writes each id once, in ascending order.

    `offset` is the end of the stdout line that the message answers or follows. Slot 0 is a decoder's reply, `END_SLOT`
    the end of stdin. The slots between are the daemon's own messages. A line that is decoded again after a restart
    therefore gives the same id. The daemon journals its own messages with their ids.
    """
    return offset * _SLOTS + slot + 1


def _number_of(message: tuple[int, str | None]) -> int:
    return message[0]


class KeeperLink:
    """Link to the keeper of one run. `exited` is set once, when all output of the CLI is in the spools."""

    def __init__(
        self,
        run_dir: RunDir,
        session_id: str,
        run: int,
        storage: Storage,
        own: set[int],
        orphans: Orphans | None = None,
        *,
        on_output: Callable[[int, int], Awaitable[None]],
        on_change: Callable[[], None],
        on_connected: Callable[[], None],
        on_blocked: Callable[[bool], None],
        on_acknowledged: Callable[[int], None],
    ) -> None:
        """Prepare the link; `listen` connects.

        `on_output` reads new bytes up to these sizes of the spools. `on_change` checks for new bytes and an exit.
        `on_connected` checks the deadlines again. `on_blocked` records whether the keeper cannot write.
        `on_acknowledged` gets the id up to which the CLI's stdin has every message. Only `on_output` may wait.
        `own` gets the pids of keeper and CLI while the daemon follows the run. `orphans` ends the orphans of a killed keeper.
        """
        self._on_output, self._on_change, self._on_connected = on_output, on_change, on_connected
        self._on_blocked, self._on_acknowledged = on_blocked, on_acknowledged
        self._dir = run_dir
        self._session_id = session_id
        self._run = run
        self._storage = storage
        self._orphans = orphans
        self._connection: KeeperConnection | None = None
        self._end_order: dict[str, Any] | None = None
        self._end_sent = False
        self._end_at: float | None = None  # time until which the order is held back
        self._messages: list[tuple[int, str | None]] = []  # by id, until the keeper has written them
        self._sent_to = 0  # the highest id sent over this connection
        self._last_id = 0  # the highest id that the keeper has or will get
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

    # -- messages to the CLI's stdin

    def say(self, number: int, text: str | None) -> None:
        """Queue a message for the CLI's stdin (None: its end). `talk` sends it, exactly once."""
        insort(self._messages, (number, text), key=_number_of)
        self._last_id = max(self._last_id, number)
        self._news.set()

    def reply(self, replies: Sequence[Reply], end: int) -> None:
        """Queue the decoder's replies to the line that ends at `end`. A repeated decoding gives the same ids."""
        if text := "".join(reply for reply in replies if isinstance(reply, str)):
            self.say(stdin_id(end), text)
        if END_OF_INPUT in replies:
            self.say(stdin_id(end, END_SLOT), None)

    def in_order(self) -> None:
        """Begin to send, lowest id first: all earlier messages are queued again."""
        self._in_order.set()
        self._news.set()

    async def ready(self) -> None:
        """Wait until the daemon may send messages of its own, or the run has ended."""
        await self._greeted.wait()
        await self._in_order.wait()

    def next_id(self, offset: int) -> int | None:
        """Return a new id for a message after the stdout line that ends at `offset`.

        Return None while the keeper's highest id is unknown (`ready` waits for it), and after the run's end.
        """
        if not (self._greeted.is_set() and self._in_order.is_set()) or self.exited is not None or self._given_up:
            return None
        self._last_id = max(self._last_id + 1, stdin_id(offset, 1))
        return self._last_id

    def give_up(self) -> None:
        """Stop following the run. `next_id` then returns None, and tasks in `ready` continue."""
        self._given_up = True
        self._own -= self._pids
        self._greeted.set()
        self._in_order.set()

    async def deliver(self) -> None:
        """Send queued messages in order until cancelled. A new connection gets all unacknowledged messages again."""
        while True:
            self._news = trio.Event()
            if self._in_order.is_set():
                await self._send_queued()
            await self._news.wait()

    async def _send_queued(self) -> None:
        while (at := bisect_right(self._messages, self._sent_to, key=_number_of)) < len(self._messages):
            connection = self._connection
            if connection is None:
                return  # the next connection sets `_news`
            number, text = self._messages[at]
            self._sent_to = number
            message = {"op": "eof", "id": number} if text is None else {"op": "stdin", "id": number, "data": text}
            failpoint("keeper.stdin.before")
            await connection.send(message)
            failpoint("keeper.stdin.after")

    def _acknowledged(self, number: int) -> None:
        while self._messages and self._messages[0][0] <= number:
            self._messages.pop(0)
        self._on_acknowledged(number)

    async def _refused(self, number: int, error: str) -> None:
        """Send again later if the keeper's queue is full. A CLI without stdin, or after its exit, never takes a message."""
        if error == "full":
            await trio.sleep(STDIN_RETRY_S)
            self._sent_to = min(self._sent_to, number - 1)
            self._news.set()
        else:
            self._messages.clear()

    @property
    def has_messages(self) -> bool:
        """Tell whether a message waits until the keeper has written it."""
        return bool(self._messages)

    # -- the order to end

    @property
    def ending(self) -> bool:
        """Tell whether the run was ordered to end."""
        return self._end_order is not None

    @property
    def order_is_due(self) -> bool:
        """Tell whether the order is no longer held back to let the CLI end by itself."""
        return self._end_at is not None and self._end_at <= clock.monotonic()

    @property
    def waits(self) -> bool:
        """Tell whether the order is held back to let the CLI end by itself."""
        return self.ending and not self.order_is_due

    @property
    def unkillable(self) -> bool:
        """Tell whether keeper and CLI survive a SIGKILL, because of a tracer or because the kernel waits for a disk."""
        return self._hung and self.exited is None

    @property
    def ladder(self) -> Ladder:
        """Return the steps of the order, or an empty list without an order."""
        return [(name, grace) for name, grace in self._end_order["ladder"]] if self._end_order else []

    def order_end(self, reason: str, ladder: Ladder, *, after_s: float = 0) -> None:
        """Order the end of the run in `after_s` seconds; `send_end` sends the order. A later order only shortens the time."""
        now = clock.monotonic()
        self._end_order = {"op": "end", "ladder": [list(step) for step in ladder], "reason": reason}
        self._end_sent = False
        self._end_at = now + after_s
        self._hung_at = now + after_s + sum(grace for _, grace in ladder) + self._slack_s
        self._on_connected()

    def withdraw_order(self) -> None:
        """Drop an unsent order, because the CLI complied in time."""
        if self._end_order is not None and not self._end_sent and not self.order_is_due:
            self._end_order = self._end_at = self._hung_at = None
            self._on_connected()

    @property
    def send_end_at(self) -> float | None:
        """Return the time at which `send_end` is due next, or None without an order."""
        waits = self._end_at is not None and self._end_at > clock.monotonic()
        return self._end_at if waits else self._hung_at

    async def send_end(self) -> None:
        """Send a due order to the keeper. Kill keeper and CLI if the keeper does not report the end in time."""
        now = clock.monotonic()
        due = self._end_order is not None and not self._end_sent and self._end_at is not None and now >= self._end_at
        if self._connection is not None and due:
            failpoint("keeper.order.before")
            # A keeper may hang in the middle of a message. The order must not wait for such a keeper forever.
            with trio.move_on_after(max(0.0, (self._hung_at or now) - now)):
                self._end_sent = await self._connection.send(self._end_order or {})
            failpoint("keeper.order.after")
        if self._hung_at is not None and clock.monotonic() >= self._hung_at and self.exited is None:
            _log.error("keeper hung", session=self._session_id, run=self._run)
            self._hung_at = clock.monotonic() + LADDER_SLACK_S
            await self._sweep(keeper_of(self._dir))
            self._hung = True

    # -- reports of the keeper

    async def listen(self) -> None:
        """Connect to the keeper, and connect again after each disconnect, until the run has ended."""
        while self.exited is None:
            try:
                self._connection = await KeeperConnection.connect(self._dir.path)
            except (OSError, WorldError):
                await self._look_at_files()
                continue
            failpoint("keeper.hello")
            self._greet(self._connection.hello)
            while (message := await self._connection.receive()) is not None:
                await self._handle(message)
            await self.aclose()
            if self.exited is None:
                await self._look_at_files()

    def _greet(self, hello: dict[str, Any]) -> None:
        self.keeper_pid = hello.get("keeper_pid")
        self._pids |= {int(pid) for name in ("keeper_pid", "pid") if (pid := hello.get(name))}
        self._own |= self._pids
        self._end_sent = False
        written = int(hello.get("last_id") or 0)
        self._last_id = max(self._last_id, written, int(hello.get("last_taken") or 0))
        self._acknowledged(written)
        self._sent_to = 0
        self._greeted.set()
        self._news.set()
        self._on_connected()
        self._set_blocked(bool(hello.get("blocked")))
        self._on_change()

    async def aclose(self) -> None:
        """Close the connection. A keeper with an ended run waits for this close before its exit."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.aclose()

    async def _handle(self, message: dict[str, Any]) -> None:
        if ARMED:
            failpoint("keeper.push")
        if "ack" in message:
            self._acknowledged(int(message["ack"]))
        elif "nack" in message:
            await self._refused(int(message["nack"]), str(message.get("error")))
        match message.get("push"):
            case "grew":
                await self._on_output(int(message["out"]), int(message["err"]))
                if self._connection is not None:
                    if ARMED:
                        failpoint("keeper.ack.before")
                    await self._connection.acknowledge_growth()
                    if ARMED:
                        failpoint("keeper.ack.after")
            case "blocked" | "unblocked" as push:
                self._set_blocked(push == "blocked")
            case "exited":
                self._set_exited(exit_from_file(message.get("exit")))

    def _set_blocked(self, blocked: bool) -> None:
        """Give a keeper more time to end while the disk is full. The extra time stays once the end is ordered."""
        if blocked and self._slack_s == LADDER_SLACK_S:
            self._slack_s += DISK_SLACK_S
            self._hung_at = None if self._hung_at is None else self._hung_at + DISK_SLACK_S
        elif not blocked and not self.ending:
            self._slack_s = LADDER_SLACK_S
        self._on_blocked(blocked)

    def _set_exited(self, record: ExitRecord) -> None:
        self.exited = record
        self._own -= self._pids
        self._greeted.set()
        self._in_order.set()
        self._on_change()

    # -- a keeper that cannot be reached

    async def _look_at_files(self) -> None:
        """Search the run's directory for the fate of the keeper. Wait a moment if the directory does not tell.

        While a keeper holds the lock, the run goes on: a process of the CLI can write an exit record, too.
        """
        try:
            with self._storage.watched():
                if keeper_of(self._dir) is None:
                    await self._declare_dead()
                else:
                    await trio.sleep(RECONNECT_S)
        except (OSError, WorldError):  # a bad disk gives no answer yet
            await trio.sleep(STORAGE_RETRY_S)

    async def _declare_dead(self) -> None:
        """Take the lock of a keeper that is gone, end the remaining processes, and read its exit record, or write one."""
        lock = FileLock(self._dir.lock)
        if lock.acquire() is not None:
            return  # the keeper was only starting
        try:
            record = self._dir.exit_record()
            if record is None:
                record = {**UNKNOWN_EXIT, "survivors": await self._sweep()}
                failpoint("dead.before")
                self._dir.declare_dead(record)
            elif self._orphans is not None and not self._orphans.released(record):
                await self._orphans.end()  # there are none, unless a process of the CLI wrote the record
            self._set_exited(exit_from_file(record))
        finally:
            lock.release()

    async def _sweep(self, keeper: int | None = None) -> list[dict[str, Any]]:
        """Kill the run's processes and the orphans of the keeper. Return the killed processes."""
        cgroup = self._dir.cgroup()
        killed = await sweep(self._dir.mark(), keeper=keeper, cgroup=cgroup)
        return killed + (await self._orphans.end() if self._orphans is not None else [])
