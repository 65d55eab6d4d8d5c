"""Subscription of a client to one session or to all. A subscription reads journals at the client's pace, without a queue.

A subscription holds a position for each session, and a list of the sessions with news. A session moves to the end of
this list after each piece, so that no session waits for another.

`notify` sends events in the step that journals them, to a client that keeps up. The task of the subscription sends the rest:
history, bytes that the socket did not accept at once, and pieces beyond the client's fair share.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from clisup.daemon.clients.fair_share import ClientShare
from clisup.daemon.clients.frame_writer import FrameWriter
from clisup.daemon.journal.event_cache import PIECE_BYTES
from clisup.daemon.journal.recorder import Recorder, Watchers
from clisup.model.journal import EventFrames, event_type
from clisup.store.journal_reader import JournalReader
from clisup.wire.jsonrpc import encode_notification, encode_notifications

__all__ = ["EventFilter", "Subscription"]

FEW = 32  # events; more unsent events count as history, and wait for the client's share
OPEN_READERS = 16  # open files of one subscription


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Filter of the events for a client, and their form."""

    types: frozenset[str] | None = None
    deltas: bool = True
    raw: bool = False

    def wants(self, event: bytes) -> bool:
        """Return True if the client wants this envelope or notification."""
        if self.types is None and self.deltas:
            return True
        kind = event_type(event)
        return (self.types is None or kind in self.types) and (self.deltas or kind != "content_delta")

    def wanted_of(self, frames: EventFrames) -> bytes:
        """Return the notifications for the client."""
        if self.types is None and self.deltas:
            return frames.data
        return b"".join([line + b"\n" for line in frames.lines if self.wants(line)])


class Subscription:
    """Follower of the sessions in `begin`. Its end cancels only waits, so that every frame stays whole."""

    def __init__(
        self,
        wants: EventFilter,
        *,
        begin: Mapping[str, int],
        known: Mapping[str, Recorder],
        watchers: Watchers,
    ) -> None:
        """Begin with the seqs of `begin`. `known` has the recorders of these sessions.

        A session that notifies and is in neither is new, and is followed from its first event. `watchers` holds the
        subscription until its end.
        """
        self._wants = wants
        self._at = dict(begin)
        self._dirty: OrderedDict[str, Recorder] = OrderedDict(
            (id_, recorder) for id_, recorder in known.items() if begin[id_] < recorder.next_seq
        )
        self._readers: OrderedDict[str, JournalReader] = OrderedDict()
        self._wake = trio.Event()
        self._idle: FrameWriter | None = None  # set while the task sends nothing: `notify` may send
        self._waiting: trio.CancelScope | None = None
        self._ended = False
        self._watchers = watchers
        watchers[self] = None

    @property
    def behind(self) -> bool:
        """True if the client still has to get an event."""
        return bool(self._dirty) and not self._ended

    # -- calls of the daemon -----------------------------------------------------------------------------------------

    def notify(self, recorder: Recorder, *, at_once: bool = True) -> None:
        """Send the news of a session. The task sends them if `at_once` is false, or if the socket does not accept them."""
        if at_once and self._idle is not None and not self._dirty and self._push_one(recorder, self._idle):
            return
        self._dirty[recorder.session_id] = recorder
        if not at_once or self._idle is None or not self._push(self._idle):
            self._wake.set()

    def forget(self, session_id: str) -> None:
        """Drop a deleted session."""
        self._at.pop(session_id, None)
        self._dirty.pop(session_id, None)
        self._close(session_id)

    def end(self) -> None:
        """End the subscription after the current piece."""
        self._ended = True
        self._watchers.pop(self, None)
        if self._waiting is not None:
            self._waiting.cancel()

    # -- the task ----------------------------------------------------------------------------------------------------

    async def follow(self, writer: FrameWriter, share: ClientShare) -> None:
        """Send stored events, then new ones, until the end. A piece of history waits for the client's `share`."""
        try:
            while not self._ended:
                self._wake = trio.Event()
                self._idle = writer
                if writer.busy:
                    await writer.flush()
                elif not self._dirty or self._push(writer):
                    with trio.CancelScope() as self._waiting:
                        if not self._ended:
                            await self._wake.wait()
                elif not writer.busy:
                    self._idle = None
                    await self._send_some(writer, share)
                await trio.lowlevel.checkpoint()  # a filter may leave nothing to send, and other tasks must run
        finally:
            self._idle = None
            for session_id in list(self._readers):
                self._close(session_id)
        await writer.flush()  # completes the last frame

    async def _send_some(self, writer: FrameWriter, share: ClientShare) -> None:
        """Send one piece, and wait for the socket or for the client's share."""
        session_id, recorder = next(iter(self._dirty.items()))
        position = self._at.get(session_id, 1)
        if position >= recorder.next_seq:
            del self._dirty[session_id]
        elif self._wants.raw or not recorder.recent.has(position):
            await self._send_stored(recorder, position, writer, share)
        else:
            frames, sent = self._cached_piece()
            if frames:
                await writer.write_events(frames)
            self._advance(sent)

    def _push_one(self, recorder: Recorder, writer: FrameWriter) -> bool:
        """Send the news of one session. This is by far the most frequent case. Return False if the task has to do more."""
        if self._ended or self._wants.raw or not writer.has_room():
            return False
        session_id = recorder.session_id
        if (found := self._from_cache(recorder, self._at.get(session_id, 1))) is None:
            return False
        self._at[session_id], frames = found
        if frames:
            writer.write_now(frames)
        return found[0] >= recorder.next_seq and not writer.busy

    def _push(self, writer: FrameWriter) -> bool:
        """Send cached events while the socket accepts them. Return False if the task has to do more."""
        while self._dirty:
            if self._ended or self._wants.raw or not writer.has_room():
                return False
            frames, sent = self._cached_piece()
            if not sent:
                return False  # the events are only in the journal
            if frames:
                writer.write_now(frames)
            self._advance(sent)
        return not writer.busy

    def _cached_piece(self) -> tuple[bytes, dict[Recorder, int]]:
        """Return one piece of cached events, of as many sessions as fit, and the next seq of each session."""
        pieces: list[bytes] = []
        sent: dict[Recorder, int] = {}
        size = 0
        for session_id, recorder in self._dirty.items():
            if (found := self._from_cache(recorder, self._at.get(session_id, 1))) is None:
                continue  # the events are only in the journal
            sent[recorder], frames = found
            pieces.append(frames)
            size += len(frames)
            if size >= PIECE_BYTES:
                break
        return b"".join(pieces) if len(pieces) != 1 else pieces[0], sent

    def _advance(self, sent: Mapping[Recorder, int]) -> None:
        """Move the positions of sessions to these next seqs."""
        for recorder, after in sent.items():
            session_id = recorder.session_id
            if self._dirty.get(session_id) is not recorder:
                continue  # deleted meanwhile, and perhaps replaced by a session with the same id
            self._at[session_id] = after
            if after >= recorder.next_seq:
                del self._dirty[session_id]
            else:
                self._dirty.move_to_end(session_id)

    async def _send_stored(self, recorder: Recorder, position: int, writer: FrameWriter, share: ClientShare) -> None:
        """Send one piece from the journal of a session."""
        if recorder.next_seq - position > FEW:
            with trio.CancelScope() as self._waiting:
                await share.wait_for_piece()
        if self._ended:
            return
        after, frames = await self._from_journal(recorder, position)
        if frames and not self._ended:
            await writer.write_events(frames)
        # The session may be deleted meanwhile, and replaced by a session with the same id.
        if self._dirty.get(recorder.session_id) is recorder:
            self._at[recorder.session_id] = after
            self._dirty.move_to_end(recorder.session_id)

    def _from_cache(self, recorder: Recorder, position: int) -> tuple[int, bytes] | None:
        """Return the next seq and the frames of cached events, or None if the events are only in the journal."""
        found = recorder.recent.after(position)
        return None if found is None else (found.end, self._wants.wanted_of(found))

    async def _from_journal(self, recorder: Recorder, position: int) -> tuple[int, bytes]:
        """Return the next seq and the frames of stored events, with a `session/gap` if events are missing."""
        reader = self._reader(recorder)
        reader.seek(position)
        block = await recorder.read(reader)
        gap = reader.take_gap()
        if block is None:
            frames = b""
        elif self._wants.raw:
            wanted = [stored for stored in block.events() if self._wants.wants(stored.event)]
            frames = encode_notifications("session/event", [await recorder.native(stored) for stored in wanted])
        else:
            frames = self._wants.wanted_of(block.frames)
        if gap is not None:
            frames = _gap(recorder.session_id, *gap) + frames
        return reader.position, frames

    # -- open files --------------------------------------------------------------------------------------------------

    def _reader(self, recorder: Recorder) -> JournalReader:
        """Return the reader of a session. Close the least recently used reader over `OPEN_READERS`."""
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
