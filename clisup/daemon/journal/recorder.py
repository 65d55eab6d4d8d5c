"""Recorder of a session: gives each event a seq and its bytes, then stores, folds and announces the event."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import msgspec
import trio
from msgspec import Struct

from clisup.daemon.journal.event_cache import EventCache, RecentEvents
from clisup.daemon.journal.raw_lines import with_native
from clisup.daemon.journal.storage import STORAGE_RETRY_S, Storage
from clisup.daemon.metrics import COUNTED, Meter, Metrics
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.threads import in_thread
from clisup.model.envelope import Envelopes
from clisup.model.events import ContentDelta, EventBase, Notice
from clisup.model.journal import JournalBlock, Source, StoredEvent, blocks_of, encode_block, event_type
from clisup.model.sessions.ledger import ANSWERS, FOLDED, Ledger
from clisup.model.sessions.turn_state import TurnState
from clisup.model.usage import SPENDING
from clisup.policy.notify import NOTICED
from clisup.store.journal_reader import JournalReader
from clisup.store.journal_store import JournalStore
from clisup.store.session_dir import SessionDir

__all__ = ["Item", "Recorder", "Watcher", "Watchers"]

_LOOKED_AT = FOLDED | COUNTED.keys() | SPENDING

NATIVE_TRIES = 20
"""Tries to read a line of a spool, in 5 s. A line on a bad sector must not stop its follower."""
TOLD_AT_ONCE = 32
"""Most followers that get an event in the step that journals it. Further followers get their own turn of the event loop."""
_RENEWED = Notice(
    code="journal_renewed",
    message="the journal could not be synced: a new segment begins with its state; earlier events may not survive a power loss",
)


class Item(Struct, frozen=True, gc=False):
    """Event for the journal. An event of the CLI has a `src`, an event of the daemon has none.

    `turn_id` is empty for events of a live process between two turns.
    """

    event: EventBase
    turn_id: str | None = None
    src: Source | None = None
    memo: TurnState | None = None


class Watcher(Protocol):
    """Follower of sessions. `notify` reports new events of a session. No method may block."""

    def notify(self, recorder: Recorder, *, at_once: bool = True) -> None: ...
    def forget(self, session_id: str) -> None: ...


Watchers = dict[Watcher, None]
"""Followers in the order of their arrival."""


class Recorder:
    """Recorder of one session. The journal gets each event first, then its followers.

    `watchers` follow this session, `everywhere` follow all sessions. `at_ends` and `at_notices` are the daemon's own: the
    former get only ended turns, the latter the events of `NOTICED`. Such watchers cannot answer an approval, so the
    recorder does not count them as followers. `on_recorded` logs the journaled items, after their fold.
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
        at_notices: Collection[Watcher] = (),
        meter: Meter | None = None,
        cache: EventCache | None = None,
    ) -> None:
        self.session_id = directory.id
        self.dir = directory
        self._store = store
        self._storage = storage
        self._max_keys = max_keys
        self._syncing = trio.Lock()
        self.news = trio.Event()
        """Set once, with the next events. Take the event, read the journal to its end, then wait for the event."""
        self._everywhere = everywhere
        self._at_ends = at_ends
        self._at_notices = at_notices
        self.meter = meter or Meter(Metrics(), "")
        self.on_recorded: Callable[[Sequence[Item]], None] = lambda items: None
        self.watchers: Watchers = {}
        self.ledger = Ledger()
        self.recent = RecentEvents(cache or EventCache())

    def load(self) -> None:
        """Fold the stored events. Raises `WorldError(storage_failed)` for a damaged journal, `UsageError` for a newer format."""
        try:
            for record in self._store.load(FOLDED):
                self.ledger.apply(record, max_keys=self._max_keys)
            if self.ledger.current is not None:
                self._recall_spending(max(self.ledger.current.began_seq, self._store.head_seq))
            self.rest()
        except BaseException:
            self._store.close()
            raise

    def _recall_spending(self, from_seq: int) -> None:
        """Add the running turn's usage since the last segment's snapshot."""
        for stored in self._store.events(from_seq - 1):
            if event_type(stored.event) in SPENDING:
                self.ledger.spend(json.loads(stored.event))

    def renew(self, *, max_keys: int, segment_bytes: int, durable: bool) -> None:
        """Use other settings from the next event on."""
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
        try:
            return self._record(items)
        except WorldError as error:
            self._storage.refused(error)
            raise

    def _record(self, items: Sequence[Item]) -> int:
        ts = clock.timestamp()
        first = self._store.next_seq
        envelopes = Envelopes(self.session_id, ts)
        frames: list[bytes] = []
        sources: list[Source | None] = []
        memos: dict[int, TurnState] = {}
        logged: list[Item] = []
        for seq, item in enumerate(items, first):
            frames.append(envelopes.frame(item.event, seq, item.turn_id or None, "backend" if item.src else "daemon"))
            sources.append(item.src)
            if item.memo is not None:
                memos[seq] = item.memo
            if type(item.event) is not ContentDelta:
                logged.append(item)
        blocks = blocks_of(first, frames, sources, memos)
        data = b"".join(map(encode_block, blocks))
        snapshot = self.ledger.snapshot() if self._store.wants_snapshot(len(data)) else None
        self._store.append(data, len(frames), snapshot)
        self.meter.stored(len(frames), sources.count(None), len(data))
        if self.watchers or self._everywhere:
            self.recent.add([block.frames for block in blocks])
        elif self.recent.size:
            self.recent.clear()  # the cache must have no gap
        self._fold_all(items, first, ts)
        if logged:
            self.on_recorded(logged)
        if self._at_notices and any(item.event.type in NOTICED for item in logged):
            for watcher in self._at_notices:
                watcher.notify(self)
        for number, watcher in enumerate(chain(self.watchers, self._everywhere)):
            watcher.notify(self, at_once=number < TOLD_AT_ONCE)
        self.news.set()
        self.news = trio.Event()
        return first + len(frames) - 1

    async def record_with_retry(self, make: Callable[[], list[Item]]) -> None:
        """Journal the items that `make` returns. While the disk refuses, wait, call `make` again and try again.

        `make` may return nothing by then.
        """
        await self._storage.with_retry(lambda: self._record(items) if (items := make()) else None)

    def _fold_all(self, items: Sequence[Item], first: int, ts: str) -> None:
        """Fold the items into the ledger. The ledger gets only the last place of events that it does not read."""
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

    def wake(self) -> None:
        """Let all tasks that wait for `news` check again."""
        self.news.set()
        self.news = trio.Event()

    @property
    def followers(self) -> int:
        """Return the number of subscriptions that see this session."""
        return len(self.watchers) + len(self._everywhere)

    def reader(self, after_seq: int) -> JournalReader:
        """Return a reader of the events above `after_seq`."""
        return self._store.reader(after_seq)

    def events(self, after_seq: int) -> Iterator[StoredEvent]:
        """Yield the events above `after_seq`. Raises `WorldError(storage_failed)`."""
        return self._store.events(after_seq)

    def event(self, seq: int) -> dict[str, Any] | None:
        """Return one stored event, or None if the event was removed or is damaged. Raises `WorldError(storage_failed)`."""
        reader = self.reader(seq - 1)
        try:
            block = reader.read()
        finally:
            reader.close()
        return dict(json.loads(block.events()[0].event)) if block is not None and block.frames.first == seq else None

    def release(self, upto: int) -> list[str]:
        """Drop whole segments of events up to `upto`, and return the files to unlink. Raises `WorldError(storage_failed)`."""
        return self._store.release(upto, self.ledger.snapshot())

    async def read(self, reader: JournalReader) -> JournalBlock | None:
        """Return the reader's next events. While the disk cannot be read, wait and try again."""
        return await self._storage.with_retry(reader.read)

    async def native(self, stored: StoredEvent) -> bytes:
        """Return the event with the CLI's own line. If the line cannot be read for a while, return the event alone."""
        for _ in range(NATIVE_TRIES):
            try:
                with self._storage.watched():
                    return await with_native(stored, self.dir)
            except WorldError:
                await trio.sleep(STORAGE_RETRY_S)
        return stored.event

    async def sync(self, then: Callable[[], None] | None = None) -> None:
        """Make the recorded events survive a power loss. Raises `WorldError(storage_failed)` only while the daemon stops.

        `then` runs in the same thread, because to unlink a file can take as long as a sync at the same time.

        The kernel drops pages after a failed sync. After a failure the next event therefore begins a new segment. The new
        snapshot holds everything that the old segment should hold: prompts, keys, ends.
        """
        while True:
            try:
                await self._sync(then)
                return
            except WorldError:
                if self._storage.stopping:
                    raise
            await self._storage.recovered()
            await self.record_with_retry(lambda: [Item(_RENEWED)])

    async def _sync(self, then: Callable[[], None] | None) -> None:
        async with self._syncing:  # a second caller must not return before the events of the first are on disk
            with self._storage.watched(), trio.CancelScope(shield=True):
                began = clock.monotonic()
                await in_thread(_synced, self._store, self._store.unsynced(), then)
                self.meter.metrics.observe("clisup_journal_sync_duration_seconds", clock.monotonic() - began)

    def rest(self) -> None:
        """Give up the journal's descriptor until the next event."""
        self._store.rest()

    def close(self) -> None:
        """Close the files."""
        self._store.close()
        self.recent.clear()


def _synced(store: JournalStore, unsynced: list[int], then: Callable[[], None] | None) -> None:
    store.sync(unsynced)
    if then is not None:
        then()
