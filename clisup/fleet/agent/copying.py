"""Copy of this box's journals into the engine, by the rules of `clisup.fleet.chain`.

One connection follows all sessions. It begins at each session's last stored event, which is compared with the journal. A
session whose journal is another one goes on in the next epoch. After a doubt that needs earlier events, the whole
following begins again.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from clisup.errors import ClisupError, WorldError
from clisup.fleet.agent.daemon_link import DaemonLink, EventLines
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.chain import (
    CHUNK_BYTES,
    Append,
    MissingEvents,
    Piece,
    StoredChunk,
    all_epochs,
    chunk_subject,
    is_rewound,
    next_step,
    read_chunk,
    read_subject,
    unknown,
)
from clisup.fleet.engine import Engine, StoredMessage
from clisup.host.log import event_logger
from clisup.model.envelope import FRAME_BEGIN
from clisup.model.journal import EventFrames, event_seq

__all__ = ["HELD_BYTES", "LINGER_S", "Copying", "sessions_of"]

AT_ONCE = 64
"""Sessions whose chunks are under way at once."""
HELD_BYTES = 64 * 1024 * 1024
"""Bytes of events in memory. With more the agent does not read from the daemon, whose journal keeps the rest."""
LINGER_S = 0.25
"""Seconds for which a chunk waits for more events of its session."""
AGAIN_S = 1.0
UNREADABLE = ("unsupported", "storage_failed")
"""Kinds of the errors of a chunk that a later clisup wrote, or that is damaged."""
_OTHERS = 20  # looks at a chain that is ahead of this agent, before the following begins again
_ID = len(FRAME_BEGIN + b'{"session_id":"')
_log = event_logger()


class _Restart(Exception):
    """The following has to begin again, because the copy needs events that were read before."""


class _Session:
    """Session with the events that are not known to be stored. `stored` is trusted unless `doubt`."""

    def __init__(self, id_: str, epoch: int = 0, stored: StoredChunk | None = None, *, doubt: bool = True) -> None:
        self.id, self.epoch, self.stored, self.doubt = id_, epoch, stored, doubt
        self.held: deque[Piece] = deque()
        self.bytes = 0
        self.next_seq = 0  # of the next event to read
        self.compared = stored is None
        self.copying = False
        self.full = asyncio.Event()

    @property
    def next_pieces(self) -> list[Piece]:
        """Return enough of the held pieces for the next chunk."""
        return list(_first_bytes(self.held, CHUNK_BYTES))

    def drop(self, end: int) -> int:
        """Drop the events up to seq `end`. Return their bytes."""
        before = self.bytes
        while self.held and self.held[0].first <= end:
            piece = self.held.popleft()
            self.bytes -= _size(piece)
            if rest := unknown([piece], end):
                self.held.appendleft(rest[0])
                self.bytes += _size(rest[0])
                break
        return before - self.bytes


class Copying:
    """Copy of all sessions. `ends` has the last stored seq of each session; `rewound` the epochs of replaced journals."""

    def __init__(self, engine: Engine, member: str, daemon_socket: str) -> None:
        self._engine, self._member, self._socket = engine, member, daemon_socket
        self._epochs: dict[str, int] = {}
        self._left_out: set[str] = set()
        self.ends: dict[str, int] = {}
        self.held_bytes = 0
        self.appended = 0
        self._room = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Copy until cancelled. Raises `ClisupError` when the daemon ends, or the engine is away at the beginning."""
        while True:
            self.held_bytes = 0
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._follow(tasks)
            except* _Restart:
                _log.info("copy begins again")
                await asyncio.sleep(AGAIN_S)
            except* ClisupError as group:
                raise _first(group) from None

    # -- reading

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        sessions = {session.id: session for session in await self._begin()}
        after = {session.id: session.next_seq - 1 for session in sessions.values()}
        lines = EventLines(self._socket, "clisup-fleet-copy")
        async with aclosing(lines.follow(after)) as batches:
            async for batch in batches:
                for id_, pieces in _by_session(batch).items():
                    if id_ in self._left_out:
                        continue
                    session = sessions.get(id_)
                    if session is None:
                        session = sessions[id_] = _Session(id_)
                        session.next_seq = 1
                    for piece in pieces:
                        self._hold(session, piece)
                    if not session.copying:
                        session.copying = True
                        tasks.create_task(self._copy(session))
                while self.held_bytes > HELD_BYTES:
                    self._room.clear()
                    await self._room.wait()

    async def _begin(self) -> list[_Session]:
        """Return the daemon's sessions with the ends of their chains."""
        async with DaemonLink.open(self._socket, "clisup-fleet-copy") as link:
            ends = {row["session_id"]: int(row["next_seq"]) async for row in sessions_of(link)}
        found = list[_Session]()
        left = iter(list(ends.items()))

        async def look() -> None:
            for id_, next_seq in left:
                try:
                    found.append(await self._session(id_, next_seq))
                    self._left_out.discard(id_)
                except WorldError as error:
                    if error.kind not in UNREADABLE:
                        raise
                    self._leave_out(id_, error)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(look())
        return found

    def _leave_out(self, id_: str, error: WorldError) -> None:
        """Copy nothing of a session whose last chunk this clisup cannot read. The other sessions go on."""
        if id_ not in self._left_out:
            _log.warning("session not copied", session=id_, error=error.message)
        self._left_out.add(id_)

    async def _session(self, id_: str, next_seq: int) -> _Session:
        """Return a session as it begins: one event before the end of its chain, or at its first event in a new epoch."""
        stored = await self._end(id_, self._epochs.get(id_, 0))
        if stored is not None and stored.chunk.last >= next_seq:
            stored = await self._rewind(id_, stored)
            if stored is not None and stored.chunk.last >= next_seq:
                raise _Restart
        session = _Session(id_, self._epochs.get(id_, 0), stored, doubt=False)
        session.next_seq = stored.chunk.last if stored else 1
        self.ends[id_] = stored.chunk.last if stored else 0
        return session

    async def _end(self, id_: str, epoch: int) -> StoredChunk | None:
        """Return the last chunk of a session's present epoch, which is at least `epoch`."""
        last = _chunk(await self._engine.last(all_epochs(self._member, id_)))
        if last is not None and last.epoch < epoch:  # a late append to an earlier epoch
            last = _chunk(await self._engine.last(chunk_subject(self._member, id_, epoch)))
        if last is not None:
            self._epochs[id_] = last.epoch
        return last

    async def _rewind(self, id_: str, stored: StoredChunk) -> StoredChunk | None:
        """Begin the next epoch of a session whose journal is another one. Return its end, if it has begun."""
        self._epochs[id_] = stored.epoch + 1
        _log.warning(
            "journal is another one than the copied", session=id_, epoch=stored.epoch + 1, last=stored.chunk.last
        )
        return await self._end(id_, stored.epoch + 1)

    def _hold(self, session: _Session, piece: Piece) -> None:
        if piece.first != session.next_seq:
            raise _Restart  # deleted, and opened again with the same id
        session.held.append(piece)
        session.next_seq = piece.end
        size = _size(piece)
        session.bytes += size
        self.held_bytes += size
        if session.bytes >= CHUNK_BYTES:
            session.full.set()

    # -- writing

    async def _copy(self, session: _Session) -> None:
        """Store the held events of a session, and end when there are none."""
        behind = 0
        while session.held:
            if not session.full.is_set():
                await wait_at_most(session.full, LINGER_S)
            session.full.clear()
            async with self._slots:
                try:
                    behind = 0 if await self._store(session) else behind + 1
                except WorldError as error:
                    if error.kind != "fleet_away":
                        raise
                    session.doubt = True
                    await asyncio.sleep(AGAIN_S)
            if behind > _OTHERS:
                raise _Restart
            if session.bytes >= CHUNK_BYTES:
                session.full.set()
        session.copying = False

    async def _store(self, session: _Session) -> bool:
        """Append the next chunk. Return False if the chain has more than this agent has read."""
        if session.doubt:
            before, session.stored = session.stored, await self._end(session.id, session.epoch)
            if session.stored is not None and session.stored.epoch != session.epoch:
                raise _Restart
            known = before is not None and session.stored is not None and session.stored.position == before.position
            session.compared = (session.compared and known) or session.stored is None
            session.doubt = False
        if not session.compared and not await self._compare(session):
            session.doubt = True
            return False
        step = next_step(session.stored, session.next_pieces, self._engine.max_payload)
        if step is None:
            self._drop(session)
            return True
        if not isinstance(step, Append):
            raise _Restart
        subject = chunk_subject(self._member, session.id, session.epoch)
        session.doubt = True  # until the engine has answered
        position = await self._engine.append(subject, step.chunk.data, step.chunk.headers, expected=step.expected)
        if position is not None:
            session.stored, session.doubt = StoredChunk(session.epoch, position, step.chunk), False
            self.appended += 1
            self._drop(session)
        return True

    async def _compare(self, session: _Session) -> bool:
        """Compare the last chunk with the journal. Return False if the journal's event is not read yet."""
        stored = session.stored
        assert stored is not None
        last = stored.chunk.last
        if last >= session.next_seq:
            return False
        own = next((piece for piece in session.held if piece.first <= last < piece.end), None)
        if own is None or is_rewound(stored, own):
            if own is not None:
                await self._rewind(session.id, stored)
            raise _Restart
        session.compared = True
        return True

    def _drop(self, session: _Session) -> None:
        """Drop the events that are stored."""
        end = session.stored.chunk.last if session.stored else 0
        self.held_bytes -= session.drop(end)
        self.ends[session.id] = end
        if self.held_bytes <= HELD_BYTES:
            self._room.set()


async def sessions_of(link: DaemonLink) -> AsyncIterator[dict[str, Any]]:
    """Yield the rows of all sessions of the daemon."""
    cursor: dict[str, Any] = {}
    while True:
        page = await link.call("session/list", limit=1000, **cursor)
        for row in page["sessions"]:
            yield row
        if not page.get("next_cursor"):
            return
        cursor = {"cursor": page["next_cursor"]}


def _by_session(batch: Iterable[bytes]) -> dict[str, list[Piece]]:
    """Return the pieces of each session, in order. Consecutive events are one piece."""
    lines = dict[str, list[bytes]]()
    pieces = dict[str, list[Piece]]()
    firsts = dict[str, int]()

    def close(id_: str) -> None:
        if held := lines.pop(id_, None):
            first = firsts[id_]
            pieces.setdefault(id_, []).append(EventFrames(first, first + len(held), b"".join(held)))

    for line in batch:
        if line.startswith(FRAME_BEGIN):
            id_ = line[_ID : line.index(b'"', _ID)].decode()
            if id_ not in lines:
                lines[id_], firsts[id_] = [], event_seq(line)
            lines[id_].append(line)
            continue
        frame = json.loads(line)
        if frame.get("method") == "session/gap":
            gap = frame["params"]
            close(gap["session_id"])
            missing = MissingEvents(gap["from_seq"], gap["to_seq"] + 1, gap["reason"])
            pieces.setdefault(gap["session_id"], []).append(missing)
        elif "error" in frame:
            raise WorldError("the daemon ended the connection", kind="daemon_not_running")
    for id_ in list(lines):
        close(id_)
    return pieces


def _size(piece: Piece) -> int:
    return 0 if isinstance(piece, MissingEvents) else len(piece.data)


def _first_bytes(pieces: Iterable[Piece], least: int) -> Iterator[Piece]:
    """Yield pieces until they have more than `least` bytes."""
    size = 0
    for piece in pieces:
        yield piece
        size += _size(piece)
        if size > least:
            return


def _chunk(message: StoredMessage | None) -> StoredChunk | None:
    """Return the chunk of a message. Raises `WorldError` for a chunk of a later version."""
    if message is None:
        return None
    _, _, epoch = read_subject(message.subject)
    return StoredChunk(epoch, message.position, read_chunk(message.headers, message.data))


def _first(group: BaseExceptionGroup[ClisupError]) -> ClisupError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ClisupError)
    return error
