"""A CLI's stdout through everything that the daemon does with it: framer, decoder, blobs, journal, ledger, and the clients' side.

The daemon's own `Recorder` writes into a journal in memory. Each event must be strict JSON that reads back as itself, and the
journal, read again, must give the ledger that the daemon holds: else a restart would change the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clisup.backends.base import Carried, RunEnd
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.client.events import envelope_of
from clisup.daemon.journal.recorder import Item
from clisup.model.envelope import FRAME_BEGIN, FRAME_END
from clisup.model.events import EventBase, PromptAccepted, StderrLine, TurnError, TurnStarted
from clisup.model.journal import JournalBlock, Source, encode_snapshot, event_seq, event_type, read_entries, scan
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.sessions.ledger import Ledger
from clisup.model.usage import SPENDING
from clisup.model.verdict import ExitRecord, Terminal, conclude
from clisup.policy.secrets.redact import Redactor
from clisup.policy.spill import spill
from clisup.policy.watchdog import Patience, PhaseTracker, out_of_patience
from clisup.wire.params import BlobParams
from tests.daemon.recorder_in_memory import SESSION, MemoryJournal, recorder_in_memory
from tests.fuzz.promises import promise, strict_json

__all__ = ["decoder"]

CARRIED = (0.0, None, 0.25, 7)
INLINE_LIMITS = (256 * 1024, 300, 40)
LINE_LIMITS = (64 * 1024 * 1024, 64 * 1024 * 1024, 1500)
_ADAPTER = ClaudeAdapter()
_EXPLAINED = TurnError(kind="crashed", message="no last word")
_REDACT = Redactor(["a secret value"])


class _Daemon:
    """One turn after the other of one session, as `Run` and `TurnRunner` would have it."""

    def __init__(self, salt: int) -> None:
        self.journal = MemoryJournal()
        self.recorder = recorder_in_memory(self.journal, max_keys=10)
        self.limit = INLINE_LIMITS[salt % 3]
        self.decoder = ClaudeDecoder(Carried(CARRIED[salt % 4]))
        self.tracker = PhaseTracker()
        self.turn = 0
        self.said: list[Sequence[EventBase]] = []
        self.begin()

    def begin(self) -> None:
        self.turn += 1
        accepted = PromptAccepted(delivery="delivered", key=f"k{self.turn}")
        started = TurnStarted(run=1)
        memo = {"begin": {"out": 0, "err": 0}, "background": sorted(self.decoder.background)}
        self.recorder.record([Item(accepted, self.name), Item(started, self.name, memo=memo)])

    @property
    def name(self) -> str:
        return f"t{self.turn}"

    def record(self, items: Sequence[Item]) -> None:
        first = len(self.journal.lines)
        self.recorder.record(items)
        for item, line in zip(items, self.journal.lines[first:], strict=True):
            _check_line(item, line)

    def take(self, line: Line) -> None:
        decoded = self.decoder.decode(line)
        self.said.append(decoded.events)
        items = [self._item(event, line, k) for k, event in enumerate(decoded.events)]
        if items:
            self.record(items)
        if decoded.terminal is not None:
            self.end(decoded.terminal)

    def _item(self, event: EventBase, line: Line, k: int) -> Item:
        self.tracker.see(event)
        if event.type == "retry":
            out_of_patience(event, Patience(3, 5.0))  # type: ignore[arg-type]
        small, blobs = spill(event, run=1, spool="out", line=line, k=k, limit=self.limit)
        for blob in blobs:
            BlobParams(session_id=SESSION, blob=blob.name)  # a client can ask for it
            promise(4 * len(blob.data) > self.limit, "a blob is large")  # sizes are reckoned, [0] as nine characters
        return Item(small, self.name, Source(1, "out", line.start, line.end, k))

    def take_err(self, line: Line) -> None:
        text = _REDACT(line.data[:32_000].decode("utf-8", "replace"))[:2000]
        self.record([Item(StderrLine(text=text), self.name, Source(1, "err", line.start, line.end, 0))])
        end = RunEnd(exit_code=line.end % 256, signal=line.end % 70 or None, stderr=text)
        _ADAPTER.recovery(end)
        done = conclude(
            terminal=None,
            record=ExitRecord(reason="exit"),
            ending=None,
            explained=_ADAPTER.explain_exit(end),
            duration_s=None,
        )
        self.record([Item(done, self.name)])

    def end(self, terminal: Terminal) -> None:
        record = ExitRecord(exit_code=0, reason="exit", duration_s=0.5)
        done = conclude(terminal=terminal, record=record, ending=None, explained=_EXPLAINED, duration_s=0.5)
        promise(done.outcome == ("completed" if not terminal.is_error else done.outcome), "a good last word completes")
        memo = None if terminal.cost_total_usd is None else {"cost_total_usd": terminal.cost_total_usd}
        self.record([Item(done, self.name, memo=memo)])
        self.begin()


def decoder(data: bytes, salt: int) -> None:
    """Target: `data` is what the CLI said on stdout."""
    daemon = _Daemon(salt)
    framer = LineFramer(limit=LINE_LIMITS[salt % 3])
    lines = framer.feed(data)
    last = framer.close()
    lines = [line for line in [*lines, *([last] if last else [])] if line.data.strip() or line.oversize]
    for line in lines:
        daemon.take(line)
    if salt % 2:
        _check_chunks(lines, salt, daemon.said)
    if salt % 32 == 0 and lines:
        daemon.take_err(lines[0])
    _check_ledger(daemon, snapshot=salt % 4 == 0)


def _check_chunks(lines: Sequence[Line], salt: int, said: Sequence[Sequence[EventBase]]) -> None:
    """A chunk says what its lines say one by one."""
    fresh, waiting, told = ClaudeDecoder(Carried(CARRIED[salt % 4])), iter(lines), list[Sequence[EventBase]]()
    while (chunk := fresh.decode_chunk(waiting)).told or chunk.decoded is not None:
        told += [events for _, events in chunk.told]
        told += [] if chunk.decoded is None else [chunk.decoded.events]
    promise(list(map(list, told)) == list(map(list, said)), "both ways say the same of a line")


def _check_line(item: Item, line: bytes) -> None:
    ((_, block),) = scan(line)
    assert isinstance(block, JournalBlock)
    ((seq, event, src),) = block.events()
    promise((seq, src) == (event_seq(event), item.src), "the block tells the seq and the origin")
    fields = strict_json(event)
    promise(event_type(event) == item.event.type == fields["type"], "the type is found in the head")
    promise(event_seq(event) == fields["seq"], "the seq is found in the head")
    promise(line.endswith(FRAME_BEGIN + event + FRAME_END), "a block holds the notification as it is")
    back = envelope_of(fields).event
    promise(type(back) is type(item.event), "an event reads back as its type")
    promise(event.endswith(msgspec.json.encode(back)[1:]), "an event that was read back is the same")


def _check_ledger(daemon: _Daemon, *, snapshot: bool) -> None:
    data = b"".join(daemon.journal.lines)
    records, _ = read_entries(data)
    promise(len(records) == len(daemon.journal.lines), "as many records as lines")
    again = Ledger()
    for record in records:
        again.apply(record, max_keys=10)
    if again.current is not None:  # as `Recorder.load` reads them again, for the running turn alone
        for event in (record.event for record in records):
            if event is not None and event["type"] in SPENDING and event["seq"] >= again.current.began_seq:
                again.spend(event)
    promise(again == daemon.recorder.ledger, "the journal gives the same ledger")
    if snapshot:
        ((record,), _) = read_entries(encode_snapshot(again.snapshot()))
        restored = Ledger()
        restored.apply(record)
        promise(restored == again, "a snapshot gives the same ledger")
