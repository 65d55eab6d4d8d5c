"""A client's subscription to one session or to all: it reads journals at the client's pace, and nothing is queued for it.

What is kept for it is one position a session and a list of the sessions that have news. A session that has more than one
piece to give goes to the end of that list after each, so that in a subscription to all of them none waits for another.

Who keeps up gets events in the very step in which they were journaled (`stir`). Its task has what is left: history, what the
socket did not take at once, and waiting in line where the client wants more than its share.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from clisup.daemon.clients.event_cache import PIECE_BYTES
from clisup.daemon.clients.fair_share import ClientShare
from clisup.daemon.clients.frame_writer import Outlet
from clisup.daemon.sessions.recorder import Recorder, Watchers
from clisup.model.journal import event_type
from clisup.store.journal_reader import JournalReader
from clisup.wire.jsonrpc import encode_notification, encode_notifications

__all__ = ["EventFilter", "Subscription"]

FEW = 32  # events: more than that at once are history
OPEN_READERS = 16  # files that a subscription to all sessions holds open


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a client wants, and how."""

    types: frozenset[str] | None = None
    deltas: bool = True
    raw: bool = False

    @property
    def everything(self) -> bool:
        """All of them, as they are."""
        return self.types is None and self.deltas and not self.raw

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
        watchers: Watchers,
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
        self._open: tuple[Outlet, ClientShare] | None = (
            None  # set while its task has nothing under way: then `stir` may send
        )
        self._waiting: trio.CancelScope | None = None
        self._ended = False
        self._watchers = watchers
        watchers[self] = None

    @property
    def behind(self) -> bool:
        """Is there an event that the client has not got yet?"""
        return bool(self._dirty) and not self._ended

    # -- what the daemon tells ---------------------------------------------------------------------------------------

    def stir(self, recorder: Recorder, *, at_once: bool = True) -> None:
        """A session has news. With `at_once` they are sent here, where the socket takes them; else by the task."""
        if at_once and self._open is not None and not self._dirty and self._push_one(recorder, self._open[0]):
            return
        self._dirty[recorder.session_id] = recorder
        if not at_once or self._open is None or not self._push(self._open[0]):
            self._wake.set()

    def forget(self, session_id: str) -> None:
        """A session was deleted."""
        self._at.pop(session_id, None)
        self._dirty.pop(session_id, None)
        self._close(session_id)

    def end(self) -> None:
        """Send no more than the piece that is under way."""
        self._ended = True
        self._watchers.pop(self, None)
        if self._waiting is not None:
            self._waiting.cancel()

    # -- its task ----------------------------------------------------------------------------------------------------

    async def follow(self, outlet: Outlet, share: ClientShare) -> None:
        """Send what is stored, then what comes, until the subscription is ended. A piece of history waits for the client's `share`."""
        try:
            while not self._ended:
                self._wake = trio.Event()
                self._open = outlet, share
                if outlet.busy:
                    await outlet.flush()
                elif not self._dirty or self._push(outlet):
                    with trio.CancelScope() as self._waiting:
                        if not self._ended:
                            await self._wake.wait()
                elif not outlet.busy:
                    self._open = None
                    await self._send_some(outlet, share)
                await trio.lowlevel.checkpoint()  # a filter may have left nothing to send: others want their turn
        finally:
            self._open = None
            for session_id in list(self._readers):
                self._close(session_id)
        await outlet.flush()  # no frame ends in the middle

    async def _send_some(self, outlet: Outlet, share: ClientShare) -> None:
        """What takes a wait: history, or a piece for which the client has to stand in line."""
        session_id, recorder = next(iter(self._dirty.items()))
        position = self._at.get(session_id, 1)
        if position >= recorder.next_seq:
            del self._dirty[session_id]  # nothing awaits between this look and here
        elif self._wants.raw or not recorder.recent.has(position):
            await self._send_stored(recorder, position, outlet, share)
        else:
            frames, places = self._recent()
            if frames:
                await outlet.write_events(frames)
            self._has(places)

    def _push_one(self, recorder: Recorder, outlet: Outlet) -> bool:
        """The news of one session, to who has all else: the most frequent case by far. False where anything is left to do."""
        if self._ended or self._wants.raw or not outlet.has_room():
            return False
        session_id = recorder.session_id
        if (found := self._from_memory(recorder, self._at.get(session_id, 1))) is None:
            return False
        self._at[session_id], frames = found
        if frames:
            outlet.write_now(frames)
        return found[0] >= recorder.next_seq and not outlet.busy

    def _push(self, outlet: Outlet) -> bool:
        """Send what is still in memory, for as long as the socket takes it; False where something is left to the task."""
        while self._dirty:
            if self._ended or self._wants.raw or not outlet.has_room():
                return False
            frames, places = self._recent()
            if not places:
                return False  # the journal has to be read
            if frames:
                outlet.write_now(frames)
            self._has(places)
        return not outlet.busy

    def _recent(self) -> tuple[bytes, dict[Recorder, int]]:
        """One piece of what is still in memory, of as many sessions as fit into it, and the next seq of each of these."""
        pieces: list[bytes] = []
        places: dict[Recorder, int] = {}
        size = 0
        for session_id, recorder in self._dirty.items():
            if (found := self._from_memory(recorder, self._at.get(session_id, 1))) is None:
                continue  # there is nothing, or the journal has to be read
            places[recorder], frames = found
            pieces.append(frames)
            size += len(frames)
            if size >= PIECE_BYTES:
                break
        return b"".join(pieces) if len(pieces) != 1 else pieces[0], places

    def _has(self, places: Mapping[Recorder, int]) -> None:
        """The client has all of these sessions below these seqs."""
        for recorder, after in places.items():
            session_id = recorder.session_id
            if self._dirty.get(session_id) is not recorder:
                continue  # deleted meanwhile; there may be another one of its id
            self._at[session_id] = after
            if after >= recorder.next_seq:
                del self._dirty[session_id]
            else:
                self._dirty.move_to_end(session_id)

    async def _send_stored(self, recorder: Recorder, position: int, outlet: Outlet, share: ClientShare) -> None:
        """One piece of one session's journal."""
        page = recorder.recent.page(position) if self._wants.everything else None
        if page is None and recorder.next_seq - position > FEW:
            with trio.CancelScope() as self._waiting:
                await share.wait_for_piece()
        if self._ended:
            return
        after, frames = page or await self._from_journal(recorder, position)
        if frames and not self._ended:
            await outlet.write_events(frames)
        # It may have been deleted meanwhile, and there may be another one of its id.
        if self._dirty.get(recorder.session_id) is recorder:
            self._at[recorder.session_id] = after
            self._dirty.move_to_end(recorder.session_id)

    def _from_memory(self, recorder: Recorder, position: int) -> tuple[int, bytes] | None:
        """The next seq and the frames of what was journaled lately, where it is still there."""
        wants = self._wants
        if wants.everything:
            return recorder.recent.frames(position)
        if (found := recorder.recent.after(position)) is None:
            return None
        after, events = found
        return after, encode_notifications("session/event", [event for event in events if wants.wants(event)])

    async def _from_journal(self, recorder: Recorder, position: int) -> tuple[int, bytes]:
        """The same from the disk, with a word on what is missing there."""
        reader = self._reader(recorder)
        reader.seek(position)
        stored = await recorder.read(reader)
        gap = reader.take_gap()
        wanted = [event for event in stored if self._wants.wants(event.event)]
        raw = self._wants.raw
        events = [await recorder.native(event) if raw else event.event for event in wanted]
        frames = encode_notifications("session/event", events)
        if gap is not None:
            frames = _gap(recorder.session_id, *gap) + frames
        elif events and self._wants.everything:
            recorder.recent.keep_page(position, reader.position, frames)
        return reader.position, frames

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
