"""Traces: when a turn has ended, its events are read back from the journal, made into spans, and sent by a thread.

It follows the journal as a client would, with a durable place for each session, and costs a turn nothing while it runs. The
place moves on when a turn's spans were taken, or given up: a daemon that is killed in between sends them again under the same
ids. What waits to be sent is bounded; beyond that the oldest turns go, and are counted.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from clisup import __version__
from clisup.config.model import TracingConfig
from clisup.daemon.sessions.recorder import Recorder
from clisup.errors import ClisupError
from clisup.host.files import make_private_dir
from clisup.host.otlp import OtlpSender, SpanSender
from clisup.model.journal import event_type
from clisup.ops.spans import TRACED, Facts, SessionTrace, Span
from clisup.policy.cursors import begin_after
from clisup.store.cursor_store import Cursor, CursorStore

if TYPE_CHECKING:
    from clisup.daemon.sessions.registry import Manager

__all__ = ["Tracing", "open_tracing"]

PLACES = "spans"
BATCH = 512
"""Spans in one request to the collector."""
SETTLE_PAUSE_S = 0.02
_log = structlog.get_logger()


class _Ended(NamedTuple):
    """A turn's spans, and up to where its session is done with once they are gone."""

    session_id: str
    upto: int
    spans: list[Span]


def open_tracing(manager: Manager, config: TracingConfig, *, instance_id: str) -> Tracing:
    """Begin to trace: what ended after the places that are kept, else what ends from now on. Raises `WorldError(storage_failed)`."""
    home = os.path.join(manager.state_dir, "tracing")
    make_private_dir(home)
    store = CursorStore(home, limit=1)
    cursor = store.get(PLACES)
    ends = {session.id: session.recorder.next_seq - 1 for session in manager}
    stored, known = (cursor.seqs, cursor.all_known) if cursor is not None else (None, False)
    places = begin_after(ends, asked=None, stored=stored, all_known=known)
    cursor = cursor or store.make(PLACES)
    cursor.seqs, cursor.all_known = {**places}, True  # those of sessions that are gone are forgotten here
    cursor.save()
    about = {
        "service.name": config.service_name,
        "service.version": __version__,
        "service.instance.id": instance_id,
    }
    tracing = Tracing(manager, config, OtlpSender(config, about), cursor)
    manager.services.at_ends.add(tracing)
    for session in manager:
        tracing.stir(session.recorder)
    return tracing


class Tracing:
    """Told of ended turns by `stir`, which only takes note; `run` is its task."""

    def __init__(self, manager: Manager, config: TracingConfig, sender: SpanSender, cursor: Cursor) -> None:
        self._manager = manager
        self._config = config
        self._sender = sender
        self._cursor = cursor
        self._figures = manager.services.figures
        self._at = dict(cursor.seqs)  # up to where each session has been read
        self._traces: dict[str, SessionTrace] = {}  # of the sessions with a turn that has begun and not ended
        self._dirty: OrderedDict[str, Recorder] = OrderedDict()
        self._news = trio.Event()
        self._queue: deque[_Ended] = deque()
        self._made = trio.Event()
        self._busy = False
        self._scope = trio.CancelScope()
        self._away = False  # the collector took nothing at the last time

    # -- what the daemon tells ---------------------------------------------------------------------------------------

    def stir(self, recorder: Recorder, *, at_once: bool = True) -> None:
        """A turn of this session has ended, or may have. Never at once: its task does it."""
        self._dirty[recorder.session_id] = recorder
        self._news.set()

    def forget(self, session_id: str) -> None:
        """A session was deleted."""
        for book in (self._at, self._traces, self._dirty, self._cursor.seqs):
            book.pop(session_id, None)

    # -- its task ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read and send, until it is ended; what has not been sent by then, the next one sends."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    await self._follow()
        finally:
            self._sender.close()

    def end(self) -> None:
        """No more from now on."""
        self._manager.services.at_ends.discard(self)
        self._figures.spans_queued = 0
        self._scope.cancel()

    async def settle(self) -> None:
        """Wait until all that has ended is sent; not for a collector that is away. The caller bounds it all the same."""
        while (self._dirty or self._queue or self._busy) and not self._away:
            await trio.sleep(SETTLE_PAUSE_S)

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._dirty:
                session_id, recorder = next(iter(self._dirty.items()))
                try:
                    await self._read(recorder)
                except Exception as error:  # a session's edge: whatever its journal holds, the others are traced
                    _log.error("turn not traced", session=session_id, exc_info=error)
                    self._at[session_id] = recorder.next_seq - 1
                if max(recorder.ledger.ends.values(), default=0) <= self._at.get(session_id, 0):
                    self._dirty.pop(session_id, None)
                await trio.lowlevel.checkpoint()

    async def _read(self, recorder: Recorder) -> None:
        """Read on to the last end of a turn that is there by now."""
        session_id = recorder.session_id
        if (trace := self._trace(session_id)) is None:
            self.forget(session_id)
            return
        last = max(recorder.ledger.ends.values(), default=0)
        if last <= (at := self._at.setdefault(session_id, 0)):
            return
        reader = recorder.reader(at)
        try:
            while self._at[session_id] < last and (events := await recorder.read(reader)):
                for event in events:
                    if event.seq <= last and event_type(event.event) in TRACED:
                        self._take(trace, session_id, json.loads(event.event))
                self._at[session_id] = min(last, events[-1].seq)
                await trio.lowlevel.checkpoint()
                if session_id not in self._at:
                    return  # deleted meanwhile
        finally:
            reader.close()
        self._at[session_id] = last  # where its end was damaged, nothing more comes
        if trace.open_since is None:
            self._traces.pop(session_id, None)

    def _trace(self, session_id: str) -> SessionTrace | None:
        if session_id not in self._traces and (session := self._manager.find(session_id)) is not None:
            facts = Facts(
                session_id, session.spec.backend, session.backend.adapter.kind, session.context.setting("model")
            )
            self._traces[session_id] = SessionTrace(facts, content=self._config.content)
        return self._traces.get(session_id)

    def _take(self, trace: SessionTrace, session_id: str, event: dict[str, object]) -> None:
        if spans := trace.see(event):
            seq = int(str(event["seq"]))
            self._put(_Ended(session_id, min(seq, (trace.open_since or seq + 1) - 1), spans))

    # -- sending -----------------------------------------------------------------------------------------------------

    def _put(self, ended: _Ended) -> None:
        """Into the queue; where it is full, the oldest turns go out of it for nothing."""
        self._queue.append(ended)
        self._figures.spans_queued += len(ended.spans)
        while self._figures.spans_queued > self._config.max_queue:
            self._done(self._pop(), "dropped")
        self._made.set()

    def _pop(self) -> _Ended:
        ended = self._queue.popleft()
        self._figures.spans_queued -= len(ended.spans)
        return ended

    async def _send(self) -> None:
        while True:
            self._made = trio.Event()
            if not self._queue:
                await self._made.wait()
                continue
            self._busy = True
            batch = [self._pop()]
            while self._queue and sum(len(e.spans) for e in batch) + len(self._queue[0].spans) <= BATCH:
                batch.append(self._pop())
            spans = [span for ended in batch for span in ended.spans]
            taken = await trio.to_thread.run_sync(self._sender.send, spans, abandon_on_cancel=True)
            for ended in batch:
                self._done(ended, "exported" if taken else "failed")
            self._tell(taken)
            self._busy = False

    def _done(self, ended: _Ended, result: str) -> None:
        self._figures.spans[result] += len(ended.spans)
        if ended.session_id in self._at:  # else it was deleted meanwhile
            with suppress(ClisupError):  # then the next daemon sends it once more, under the same ids
                self._cursor.move(ended.session_id, ended.upto)

    def _tell(self, taken: bool) -> None:
        """Once when the collector is away, and once when it is back."""
        if taken == self._away:
            self._away = not taken
            if taken:
                _log.info("spans taken again", endpoint=self._config.endpoint)
            else:
                _log.warning("spans not taken", endpoint=self._config.endpoint)
