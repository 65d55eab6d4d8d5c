"""A client's subscription to one session or to all: it reads journals at the client's pace, and nothing is queued for it.

What is kept for it is one position a session and a list of the sessions that have news. A session that has more than one
piece to give goes to the end of that list after each, so that in a subscription to all of them none waits for another.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import trio

from clisup.core.journal import event_type
from clisup.daemon.raw import with_native
from clisup.daemon.recorder import Recorder, Watcher
from clisup.daemon.turnstile import PIECE, TAIL, Turn
from clisup.host.journal_reader import JournalReader
from clisup.rpc.wire import encode_notification

__all__ = ["EventFilter", "Subscription"]

SEND_LIMIT = 64 * 1024
FEW = 32  # events: more than that at once are history
OPEN_READERS = 16  # files that a subscription to all sessions holds open
_Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a client wants, and how."""

    types: frozenset[str] | None = None
    deltas: bool = True
    raw: bool = False

    def wants(self, event: bytes) -> bool:
        """Is this envelope among them?"""
        if self.types is None and self.deltas:
            return True
        kind = event_type(event)
        return (self.types is None or kind in self.types) and (self.deltas or kind != "content_delta")


class Subscription:
    """Follows what `begin` names. It is never ended in the middle of a frame: only its waits are cancelled."""

    def __init__(
        self,
        wants: EventFilter,
        *,
        begin: Mapping[str, int],
        known: Mapping[str, Recorder],
        watchers: set[Watcher],
    ) -> None:
        """`begin` is the next seq of each session that is followed; `known` are their recorders.

        A session that stirs and is in neither is a new one: it is followed from its first event. `watchers` is where the
        subscription is told of news, from now to its end.
        """
        self._wants = wants
        self._at = dict(begin)
        self._dirty: OrderedDict[str, Recorder] = OrderedDict(
            (id_, recorder) for id_, recorder in known.items() if begin[id_] < recorder.next_seq
        )
        self._readers: OrderedDict[str, JournalReader] = OrderedDict()
        self._wake = trio.Event()
        self._waiting: trio.CancelScope | None = None
        self._ended = False
        self._watchers = watchers
        watchers.add(self)

    @property
    def behind(self) -> bool:
        """Is there an event that the client has not got yet?"""
        return bool(self._dirty) and not self._ended

    # -- what the daemon tells ---------------------------------------------------------------------------------------

    def stir(self, recorder: Recorder) -> None:
        """A session has news."""
        self._dirty[recorder.session_id] = recorder
        self._wake.set()

    def forget(self, session_id: str) -> None:
        """A session was deleted."""
        self._at.pop(session_id, None)
        self._dirty.pop(session_id, None)
        self._close(session_id)

    def end(self) -> None:
        """Send no more than the piece that is under way."""
        self._ended = True
        self._watchers.discard(self)
        if self._waiting is not None:
            self._waiting.cancel()

    # -- its task ----------------------------------------------------------------------------------------------------

    async def follow(self, send: _Send, turn: Turn) -> None:
        """Send what is stored, then what comes, until the subscription is ended. Each piece waits for the client's `turn`."""
        try:
            while not self._ended:
                self._wake = trio.Event()
                while self._dirty and not self._ended:
                    session_id, recorder = next(iter(self._dirty.items()))
                    if not await self._send_some(recorder, send, turn):
                        self._dirty.pop(session_id, None)  # nothing awaits between its look and here
                    elif session_id in self._dirty:
                        self._dirty.move_to_end(session_id)
                    await trio.lowlevel.checkpoint()  # a filter may have left nothing to send: others want their turn
                with trio.CancelScope() as self._waiting:
                    if not self._ended:
                        await self._wake.wait()
        finally:
            for session_id in list(self._readers):
                self._close(session_id)

    async def _send_some(self, recorder: Recorder, send: _Send, turn: Turn) -> bool:
        """One piece of one session; false where there was none."""
        reader = self._reader(recorder)
        if reader.position >= recorder.next_seq:
            return False
        with trio.CancelScope() as self._waiting:
            await turn.piece(PIECE if recorder.next_seq - reader.position > FEW else TAIL)
        if self._ended:
            return False
        events = await recorder.read(reader)
        pieces = [_gap(recorder.session_id, *gap)] if (gap := reader.take_gap()) else []
        for event in events:
            if self._wants.wants(event.event):
                native = with_native(event.event, event.line, recorder.dir) if self._wants.raw else event.event
                pieces.append(encode_notification("session/event", native))
        if not events and not gap:
            return False
        await self._send_all(pieces, send)
        self._at[recorder.session_id] = reader.position
        return True

    async def _send_all(self, frames: list[bytes], send: _Send) -> None:
        """In pieces of about 64 KiB, so that an answer of another request gets its turn in between."""
        piece: list[bytes] = []
        size = 0
        for frame in frames:
            piece.append(frame)
            size += len(frame)
            if size >= SEND_LIMIT and not self._ended:
                await send(b"".join(piece))
                piece, size = [], 0
        if piece and not self._ended:
            await send(b"".join(piece))

    # -- open files --------------------------------------------------------------------------------------------------

    def _reader(self, recorder: Recorder) -> JournalReader:
        """The session's reader; the one that was not used for longest gives up its file for it."""
        session_id = recorder.session_id
        reader = self._readers.pop(session_id, None) or recorder.reader(self._at.get(session_id, 1) - 1)
        self._readers[session_id] = reader
        if len(self._readers) > OPEN_READERS:
            self._close(next(iter(self._readers)))
        return reader

    def _close(self, session_id: str) -> None:
        if (reader := self._readers.pop(session_id, None)) is not None:
            reader.close()


def _gap(session_id: str, from_seq: int, to_seq: int, reason: str) -> bytes:
    fields = {"session_id": session_id, "from_seq": from_seq, "to_seq": to_seq, "reason": reason}
    return encode_notification("session/gap", json.dumps(fields).encode())
