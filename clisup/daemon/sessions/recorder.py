"""A session's one way to its journal: every event gets its seq and its bytes here, is stored, folded, and then announced."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, Protocol

import msgspec
import trio
from msgspec import Struct

from clisup.daemon.clients.event_cache import EventCache, RecentEvents
from clisup.daemon.clients.raw_lines import with_native
from clisup.daemon.ops.metrics import COUNTED, Meter, Metrics
from clisup.daemon.storage import STORAGE_RETRY_S, Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.model.envelope import Envelopes
from clisup.model.events import ContentDelta, EventBase, Notice
from clisup.model.journal import Source, encode_line, event_type
from clisup.model.sessions.ledger import ANSWERS, FOLDED, Ledger
from clisup.model.sessions.spending import SPENDING
from clisup.model.sessions.turn_state import TurnState
from clisup.store.journal_reader import JournalReader, StoredEvent
from clisup.store.journal_store import JournalStore
from clisup.store.session_dir import SessionDir

__all__ = ["Item", "Recorder", "Watcher", "Watchers"]

_LOOKED_AT = FOLDED | COUNTED.keys() | SPENDING

NATIVE_TRIES = 20
"""To read a line of a spool, in 5 s: one that lies on a bad sector must not hold up its follower for good."""
TOLD_AT_ONCE = 32
"""Followers that get an event in the step that journals it; more of them have their own turn, so that others have theirs."""
_RENEWED = Notice(
    code="journal_renewed",
    message="the journal could not be synced: its state is written anew; events of before may not survive a power loss",
)


class Item(Struct, frozen=True, gc=False):
    """An event to be journaled: of the CLI where it has a `src`, the daemon's own where it has none.

    `turn_id` may be that of what a live process does between two turns, which is empty: such an event has no turn.
    """

    event: EventBase
    turn_id: str | None = None
    src: Source | None = None
    memo: TurnState | None = None


class Watcher(Protocol):
    """Who is told that a session has news. It may not block."""

    def notify(self, recorder: Recorder, *, at_once: bool = True) -> None: ...
    def forget(self, session_id: str) -> None: ...


Watchers = dict[Watcher, None]
"""In the order in which they came. Of a session that nobody follows an empty set would take 0.2 KB."""


class Recorder:
    """Journal first, then everybody else. Not to be called from two tasks in one breath: nothing here awaits.

    `watchers` follow this session, `everywhere` are those that follow all of them. `at_ends` are the daemon's own, told of
    ended turns alone: they are no followers, for nobody is behind them who could answer an approval.
    """

    def __init__(
        self,
        directory: SessionDir,
        store: JournalStore,
        storage: Storage,
        *,
        max_keys: int,
        everywhere: Collection[Watcher] = (),
        at_ends: Collection[Watcher] = (),
        meter: Meter | None = None,
        cache: EventCache | None = None,
    ) -> None:
        self.session_id = directory.id
        self.dir = directory
        self._store = store
        self._storage = storage
        self._max_keys = max_keys
        self._syncing: trio.Lock | None = None  # these two are made when they are needed: most sessions are idle
        self._news: trio.Event | None = None
        self._everywhere = everywhere
        self._at_ends = at_ends
        self.meter = meter or Meter(Metrics(), "")
        # For the log: told once of what was journaled, after its fold.
        self.on_recorded: Callable[[Sequence[Item]], None] = lambda items: None
        self.watchers: Watchers = {}
        self.ledger = Ledger()
        self.recent = RecentEvents(cache or EventCache())

    def load(self) -> None:
        """Fold what is stored. Raises `WorldError(storage_failed)` for a damaged journal, `UsageError` for one too new."""
        try:
            for record in self._store.load(FOLDED):
                self.ledger.apply(record, max_keys=self._max_keys)
            if self.ledger.current is not None:
                self._recall_spending(max(self.ledger.current.began_seq, self._store.head_seq))
        except BaseException:
            self._store.close()
            raise

    def _recall_spending(self, from_seq: int) -> None:
        """What the running turn was told to have used, beyond what the last segment's snapshot has of it."""
        reader = self._store.reader(from_seq - 1)
        try:
            while events := reader.read():
                for stored in events:
                    if event_type(stored.event) in SPENDING:
                        self.ledger.spend(json.loads(stored.event))
        finally:
            reader.close()

    def renew(self, *, max_keys: int, segment_bytes: int, durable: bool) -> None:
        """Other settings, from the next event on."""
        self._max_keys = max_keys
        self._store.renew(segment_bytes=segment_bytes, durable=durable)

    @property
    def next_seq(self) -> int:
        return self._store.next_seq

    @property
    def first_seq(self) -> int:
        return self._store.first_seq

    def record(self, items: Sequence[Item]) -> int:
        """Journal all items or none, and return the seq of the last. Raises `WorldError(storage_failed)`."""
        with self._storage.watched():
            return self._record(items)

    def _record(self, items: Sequence[Item]) -> int:
        ts = clock.timestamp()
        first = self._store.next_seq
        events, lines = self._encode(items, first, ts)
        size = sum(map(len, lines))
        snapshot = self.ledger.snapshot() if self._store.wants_snapshot(size) else None
        self._store.append(lines, len(lines), snapshot)
        self.meter.stored(len(lines), [item.src for item in items].count(None), size)
        if self.followers:
            self.recent.add(first, events, size)
        elif self.recent.size:
            self.recent.clear()  # it must have no hole
        self._fold_all(items, first, ts)
        self.on_recorded([item for item in items if type(item.event) is not ContentDelta])
        self._announce()
        return first + len(lines) - 1

    def _encode(self, items: Sequence[Item], first: int, ts: str) -> tuple[list[bytes], list[bytes]]:
        """Return the envelopes, and the journal's lines with them."""
        envelopes = Envelopes(self.session_id, ts)
        events: list[bytes] = []
        lines: list[bytes] = []
        for seq, item in enumerate(items, first):
            source = "daemon" if item.src is None else "backend"
            event = envelopes.encode(item.event, seq, item.turn_id or None, source)
            events.append(event)
            lines.append(encode_line(event, src=item.src, memo=item.memo))
        return events, lines

    async def record_surely(self, make: Callable[[], list[Item]]) -> None:
        """Journal what must not be left out. While the disk refuses, it waits and tries again, with what `make` gives by then:
        it may be nothing any more."""
        await self._storage.with_retry(lambda: self._record(items) if (items := make()) else None)

    def _fold_all(self, items: Sequence[Item], first: int, ts: str) -> None:
        """Fold the items into the ledger. Of events that the ledger does not read, it gets the last place alone."""
        passed: Source | None = None
        answers = False
        for seq, item in enumerate(items, first):
            type_, src = item.event.type, item.src
            if type_ in _LOOKED_AT or item.memo is not None or src is None or src.spool != "out":
                if passed is not None:
                    self.ledger.pass_over(passed, answers=answers)
                    passed, answers = None, False
                self._fold(item, seq, ts)
            else:
                passed, answers = src, answers or type_ in ANSWERS
        if passed is not None:
            if answers and type_ not in ANSWERS:
                self.ledger.pass_over(passed, answers=answers)
            self.ledger.fold(type_, {"seq": seq, "ts": ts}, src=passed, memo=None, max_keys=self._max_keys)

    def _fold(self, item: Item, seq: int, ts: str) -> None:
        fields: dict[str, Any] = {"seq": seq, "ts": ts}
        type_ = item.event.type
        if type_ in _LOOKED_AT:
            self._count(item)
            if type_ in FOLDED:
                fields |= msgspec.to_builtins(item.event)
                fields["turn_id"] = item.turn_id or None
        self.ledger.fold(type_, fields, src=item.src, memo=item.memo, max_keys=self._max_keys)
        if type_ in SPENDING:
            self.ledger.spend(msgspec.to_builtins(item.event))

    def _count(self, item: Item) -> None:
        """Count rare events; never tokens."""
        if item.event.type in COUNTED:
            self.meter.see(item.event, item.turn_id, clock.monotonic())
        if item.event.type == "turn_completed":
            for watcher in self._at_ends:
                watcher.notify(self)

    def _announce(self) -> None:
        for number, watcher in enumerate(chain(self.watchers, self._everywhere)):
            watcher.notify(self, at_once=number < TOLD_AT_ONCE)
        self.wake()

    def wake(self) -> None:
        """Let everybody look again who waits for `news`."""
        if self._news is not None:
            self._news.set()
            self._news = None

    @property
    def followers(self) -> int:
        """How many subscriptions see this session."""
        return len(self.watchers) + len(self._everywhere)

    @property
    def news(self) -> trio.Event:
        """Set once, with the next events: take it, read the journal to its end, then wait for it."""
        if self._news is None:
            self._news = trio.Event()
        return self._news

    def reader(self, after_seq: int) -> JournalReader:
        """A reader of the events above `after_seq`."""
        return self._store.reader(after_seq)

    def event(self, seq: int) -> dict[str, Any] | None:
        """One stored event; None where it was removed, or is damaged. Raises `WorldError(storage_failed)`."""
        reader = self.reader(seq - 1)
        try:
            events = reader.read()
        finally:
            reader.close()
        return dict(json.loads(events[0].event)) if events and events[0].seq == seq else None

    def release(self, upto: int) -> list[str]:
        """Give up the stored events up to `upto`, by whole segments; the files to unlink. Raises `WorldError(storage_failed)`."""
        return self._store.release(upto, self.ledger.snapshot())

    async def read(self, reader: JournalReader) -> list[StoredEvent]:
        """What the reader gives next. While the disk cannot be read, it waits and tries again."""
        return await self._storage.with_retry(reader.read)

    async def native(self, stored: StoredEvent) -> bytes:
        """The event with the CLI's own line. While that cannot be read, it waits and tries again; for a while, then it goes without."""
        for _ in range(NATIVE_TRIES):
            try:
                with self._storage.watched():
                    return await with_native(stored.event, stored.line, self.dir)
            except WorldError:
                await trio.sleep(STORAGE_RETRY_S)
        return stored.event

    async def sync(self, then: Callable[[], None] | None = None) -> None:
        """Make what was recorded survive a power loss; only where the daemon stops it raises `WorldError(storage_failed)`.

        `then` is done in the same thread: beside somebody's sync, to unlink a file can take as long as that.

        The kernel gives up what it could not sync. So after a failure the next event begins a new segment, whose snapshot
        holds what the old one should have: prompts, keys, ends.
        """
        while True:
            try:
                await self._sync(then)
                return
            except WorldError:
                if self._storage.stopping:
                    raise
            await self._storage.recovered()
            await self.record_surely(lambda: [Item(_RENEWED)])

    async def _sync(self, then: Callable[[], None] | None) -> None:
        if self._syncing is None:
            self._syncing = trio.Lock()
        async with self._syncing:  # who comes second must not return before what the first one has taken is on disk
            with self._storage.watched(), trio.CancelScope(shield=True):
                began = clock.monotonic()
                await trio.to_thread.run_sync(_synced, self._store, self._store.unsynced(), then)
                self.meter.metrics.observe("clisup_journal_sync_duration_seconds", clock.monotonic() - began)

    def close(self) -> None:
        self._store.close()
        self.recent.clear()


def _synced(store: JournalStore, unsynced: list[int], then: Callable[[], None] | None) -> None:
    store.sync(unsynced)
    if then is not None:
        then()
