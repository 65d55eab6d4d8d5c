"""Tracing: a follower of the journals that makes spans of ended turns and sends them to a collector.

Tracing reads a turn's events back from the journal when the turn has ended, so it costs a running turn nothing. A
durable cursor holds the position of each session. The cursor moves when a turn's spans were sent or given up: after a
kill the next daemon sends them again, under the same ids. The queue of unsent spans is bounded. Above the bound the
oldest turns are dropped and counted.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from clisup import __version__
from clisup.config.model import TracingConfig
from clisup.daemon.journal.recorder import Recorder
from clisup.errors import ClisupError
from clisup.host.files import make_private_dir
from clisup.host.log import event_logger
from clisup.host.otlp import OtlpSender, SpanSender
from clisup.host.threads import in_thread
from clisup.model.journal import event_type
from clisup.ops.spans import TRACED, SessionTrace, Span, TracedSession
from clisup.store.cursor_store import CursorFile, CursorStore, begin_after

if TYPE_CHECKING:
    from clisup.daemon.sessions.registry import Manager

CURSOR = "spans"
BATCH = 512
"""Limit of spans in one request to the collector."""
SETTLE_PAUSE_S = 0.02
_log = event_logger()


class _EndedTurn(NamedTuple):
    """Spans of a turn, and the position of its session after them."""

    session_id: str
    upto: int
    spans: list[Span]


def open_tracing(manager: Manager, config: TracingConfig, *, instance_id: str) -> Tracing:
    """Begin to trace from the stored positions, or from now on without any. Raises `WorldError(storage_failed)`."""
    home = os.path.join(manager.state_dir, "tracing")
    make_private_dir(home)
    store = CursorStore(home, limit=1)
    cursor = store.get(CURSOR)
    ends = {session.id: session.recorder.next_seq - 1 for session in manager}
    stored, known = (cursor.seqs, cursor.all_known) if cursor is not None else (None, False)
    positions = begin_after(ends, asked=None, stored=stored, all_known=known)
    cursor = cursor or store.make(CURSOR)
    cursor.seqs, cursor.all_known = positions, True  # without the sessions that are gone
    cursor.save()
    about = {"service.name": config.service_name, "service.version": __version__, "service.instance.id": instance_id}
    tracing = Tracing(manager, config, OtlpSender(config, about), cursor)
    manager.services.at_ends.add(tracing)
    for session in manager:
        tracing.notify(session.recorder)
    return tracing


class Tracing:
    """Follower of all sessions. `notify` marks a session; the task `run` reads and sends."""

    def __init__(self, manager: Manager, config: TracingConfig, sender: SpanSender, cursor: CursorFile) -> None:
        self._manager = manager
        self._config = config
        self._sender = sender
        self._cursor = cursor
        self._metrics = manager.services.metrics
        self._read_upto = dict(cursor.seqs)
        self._traces: dict[str, SessionTrace] = {}  # of sessions with a turn in progress
        self._marked: OrderedDict[str, Recorder] = OrderedDict()
        self._news = trio.Event()
        self._queue: deque[_EndedTurn] = deque()
        self._queue_grew = trio.Event()
        self.spans_queued = 0
        self._busy = False
        self._scope = trio.CancelScope()
        self._collector_failed = False

    def notify(self, recorder: Recorder, *, at_once: bool = True) -> None:
        """Mark a session whose turn may have ended."""
        self._marked[recorder.session_id] = recorder
        self._news.set()

    def forget(self, session_id: str) -> None:
        """Drop a deleted session."""
        for table in (self._read_upto, self._traces, self._marked, self._cursor.seqs):
            table.pop(session_id, None)

    async def run(self) -> None:
        """Read and send until `end`. The next daemon sends what is left."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    await self._follow()
        finally:
            self._sender.close()

    def end(self) -> None:
        """Stop tracing."""
        self._manager.services.at_ends.discard(self)
        self._scope.cancel()

    async def settle(self) -> None:
        """Wait until the spans of all ended turns are sent, unless the collector fails. The caller sets a time limit."""
        while (self._marked or self._queue or self._busy) and not self._collector_failed:
            await trio.sleep(SETTLE_PAUSE_S)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._marked:
                session_id, recorder = next(iter(self._marked.items()))
                try:
                    await self._read(recorder)
                except Exception as error:  # whatever one journal holds, the other sessions are traced
                    _log.error("turn not traced", session=session_id, exc_info=error)
                    self._read_upto[session_id] = recorder.next_seq - 1
                if _last_end(recorder) <= self._read_upto.get(session_id, 0):
                    self._marked.pop(session_id, None)
                await trio.lowlevel.checkpoint()

    async def _read(self, recorder: Recorder) -> None:
        """Read the journal up to the last end of a turn."""
        session_id = recorder.session_id
        if (trace := self._trace(session_id)) is None:
            self.forget(session_id)
            return
        last = _last_end(recorder)
        if last <= (upto := self._read_upto.setdefault(session_id, 0)):
            return
        reader = recorder.reader(upto)
        try:
            while self._read_upto[session_id] < last and (block := await recorder.read(reader)):
                for stored in block.events():
                    if stored.seq <= last and event_type(stored.event) in TRACED:
                        self._add(trace, session_id, json.loads(stored.event))
                self._read_upto[session_id] = min(last, block.frames.end - 1)
                await trio.lowlevel.checkpoint()
                if session_id not in self._read_upto:
                    return  # the session was deleted meanwhile
        finally:
            reader.close()
        self._read_upto[session_id] = last  # a damaged end is never read
        if trace.open_since is None:
            self._traces.pop(session_id, None)

    def _trace(self, session_id: str) -> SessionTrace | None:
        if session_id not in self._traces and (session := self._manager.find(session_id)) is not None:
            kind, model = session.backend.adapter.kind, session.context.setting("model")
            traced = TracedSession(session_id, session.spec.backend, kind, model)
            self._traces[session_id] = SessionTrace(traced, content=self._config.content)
        return self._traces.get(session_id)

    def _add(self, trace: SessionTrace, session_id: str, event: dict[str, object]) -> None:
        """Add an event to the trace. Queue the spans of a turn that ends with it; drop the oldest turns of a full queue."""
        if not (spans := trace.see(event)):
            return
        seq = int(str(event["seq"]))
        self._queue.append(_EndedTurn(session_id, min(seq, (trace.open_since or seq + 1) - 1), spans))
        self.spans_queued += len(spans)
        while self.spans_queued > self._config.max_queue:
            self._done(self._pop(), "dropped")
        self._queue_grew.set()

    # -- sending -----------------------------------------------------------------------------------------------------

    def _pop(self) -> _EndedTurn:
        ended = self._queue.popleft()
        self.spans_queued -= len(ended.spans)
        return ended

    async def _send(self) -> None:
        while True:
            self._queue_grew = trio.Event()
            if not self._queue:
                await self._queue_grew.wait()
                continue
            self._busy = True
            batch = [self._pop()]
            while self._queue and sum(len(e.spans) for e in batch) + len(self._queue[0].spans) <= BATCH:
                batch.append(self._pop())
            spans = [span for ended in batch for span in ended.spans]
            sent = await in_thread(self._sender.send, spans, abandon_on_cancel=True)
            for ended in batch:
                self._done(ended, "exported" if sent else "failed")
            self._log_change(failed=not sent)
            self._busy = False

    def _done(self, ended: _EndedTurn, result: str) -> None:
        self._metrics.count("clisup_spans_total", result, by=len(ended.spans))
        if ended.session_id in self._read_upto:  # otherwise the session was deleted meanwhile
            with suppress(ClisupError):  # the next daemon then sends the turn again, under the same ids
                self._cursor.move(ended.session_id, ended.upto)

    def _log_change(self, *, failed: bool) -> None:
        """Log once that the collector fails, and once that it works again."""
        if failed == self._collector_failed:
            return
        self._collector_failed = failed
        if failed:
            _log.warning("spans not taken", endpoint=self._config.endpoint)
        else:
            _log.info("spans taken again", endpoint=self._config.endpoint)


def _last_end(recorder: Recorder) -> int:
    return max(recorder.ledger.ends.values(), default=0)
