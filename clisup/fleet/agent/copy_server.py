"""Answers for a member that is away: its sessions and events from the copy. Nothing else is possible without the box."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from clisup.errors import ClisupError, UsageError, box_away
from clisup.fleet.agent.json_server import JsonServer, introduction
from clisup.fleet.agent.table import Table
from clisup.fleet.chain import ChainReader, MissingEvents, Piece, all_epochs, read_chunk_of, read_subject, subject_token
from clisup.fleet.engine import Engine
from clisup.model.envelope import FRAME_BEGIN
from clisup.model.journal import event_seq, event_type
from clisup.wire.jsonrpc import encode_notification

__all__ = ["CopyServer"]

ALL = "*"
PAGE_BYTES = 1024 * 1024
LOOK_S = 1.0
_DETAIL: dict[str, Any] = {"tools": None, "timers": [], "watch": None, "last_events": [], "turn_cost_usd": None}


class CopyServer:
    """Server of one client about one member. The connection ends when the member is back."""

    def __init__(self, engine: Engine, table: Table, member: str) -> None:
        self._engine, self._table, self._member = engine, table, member
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._writer: asyncio.StreamWriter

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the client ends, or the member is back."""
        self._writer = writer
        methods = {
            "initialize": self._initialize,
            "ping": self._ping,
            "session/list": self._list,
            "session/get": self._get,
            "session/events": self._events,
            "session/subscribe": self._subscribe,
            "session/unsubscribe": self._unsubscribe,
        }
        serving = asyncio.create_task(JsonServer(methods, lambda _method: self._away()).serve(reader, writer))
        back = asyncio.create_task(self._wait_for_the_member())
        try:
            await asyncio.wait({serving, back}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            tasks = [serving, back, *self._followers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _away(self) -> ClisupError:
        silence = self._table.silence_s(self._member)
        if silence is None:
            return box_away(self._member, "nobody answers for it", hint="see all boxes: clisup status --fleet")
        error = box_away(
            self._member, f"its last beat was {silence:.0f} s ago", hint="its sessions can be read: clisup logs"
        )
        error.data["since_s"] = round(silence, 1)
        return error

    async def _wait_for_the_member(self) -> None:
        """Wait for a beat that came after this client."""
        heard = self._table.box(self._member)
        while True:
            now = self._table.box(self._member)
            if now is not None and now is not heard and self._table.state(self._member) == "ok":
                return
            await self._table.wait(LOOK_S)

    # -- methods

    async def _initialize(self, _params: dict[str, Any]) -> bytes:
        return introduction(f"copy of {self._member}", copy=True)

    async def _ping(self, _params: dict[str, Any]) -> bytes:
        return json.dumps({"time": datetime.now(UTC).isoformat()}).encode()

    async def _list(self, params: dict[str, Any]) -> bytes:
        labels, state = params.get("labels") or {}, params.get("state")
        rows = [
            row
            for row in self._table.rows(self._member).values()
            if (state is None or row.get("state") == state) and labels.items() <= (row.get("labels") or {}).items()
        ]
        rows.sort(key=lambda row: (row.get("created_at") or "", row["session_id"]), reverse=True)
        if (cursor := params.get("cursor")) is not None:
            ids = [row["session_id"] for row in rows]
            rows = rows[ids.index(cursor) + 1 :] if cursor in ids else []
        limit = int(params.get("limit") or 100)
        more = rows[limit - 1]["session_id"] if len(rows) > limit else None
        return json.dumps({"sessions": rows[:limit], "next_cursor": more}).encode()

    async def _get(self, params: dict[str, Any]) -> bytes:
        return json.dumps({**self._row(params["session_id"]), **_DETAIL}).encode()

    def _row(self, session_id: str) -> dict[str, Any]:
        row = self._table.rows(self._member).get(session_id)
        if row is None:
            message = f"the copy of {self._member} has no session {session_id[:64]!r}"
            raise UsageError(message, kind="session_not_found", hint="clisup sessions --fleet")
        return row

    async def _events(self, params: dict[str, Any]) -> bytes:
        """Return a page of events. `eof` is true at the end of what is copied."""
        session_id, after = params["session_id"], int(params.get("after_seq") or 0)
        self._readable(session_id, raw=bool(params.get("raw")))
        limit, types = int(params.get("limit") or 100), params.get("types")
        page, gaps, size, at, full = list[bytes](), list[dict[str, Any]](), 0, after, False
        async with aclosing(self._stored(session_id, after)) as pieces:
            async for piece in pieces:
                if isinstance(piece, MissingEvents):
                    gaps.append({"from_seq": piece.first, "to_seq": piece.end - 1, "reason": piece.reason})
                    at = piece.end - 1
                    continue
                for line in piece.lines:
                    if full := len(page) >= limit or size >= PAGE_BYTES:
                        break
                    at = event_seq(line)
                    if types is None or event_type(line) in types:
                        page.append(line[len(FRAME_BEGIN) : -1])
                        size += len(page[-1])
                if full:
                    break
        if (
            not page
            and not gaps
            and after + 1 < int(self._row(session_id)["next_seq"])
            and await self._is_empty(session_id)
        ):
            raise self._away()
        head = b'{"gaps":' + json.dumps(gaps).encode() + b',"events":[' if gaps else b'{"events":['
        eof = b"false" if full else b"true"
        return head + b",".join(page) + b'],"next_seq":' + str(at + 1).encode() + b',"eof":' + eof + b"}"

    def _readable(self, session_id: str, *, raw: bool) -> None:
        """Raise an error for events that are not copied."""
        heard = self._table.box(self._member)
        if raw or (heard is not None and heard.beat.share != "all"):
            raise self._away()
        if session_id != ALL:
            self._row(session_id)

    async def _is_empty(self, session_id: str) -> bool:
        """Tell whether nothing of a session was copied."""
        return await self._engine.last(all_epochs(self._member, session_id)) is None

    async def _stored(self, session_id: str, after: int) -> AsyncGenerator[Piece, None]:
        """Yield what is copied of a session behind `after`, up to the present end. Raises `WorldError`."""
        subject = all_epochs(self._member, session_id)
        last = await self._engine.last(subject)
        if last is None:
            return
        reader = ChainReader(after, read_subject(last.subject)[2])
        async with aclosing(self._engine.read(subject)) as messages:
            async for message in messages:
                for piece in reader.read(
                    read_subject(message.subject)[2], read_chunk_of(session_id, message.headers, message.data)
                ):
                    yield piece
                if message.position >= last.position:
                    return

    # -- subscriptions

    async def _subscribe(self, params: dict[str, Any]) -> bytes:
        """Follow one session or all. New events come while the copy grows."""
        session_id, asked = params["session_id"], params.get("after_seq")
        self._readable(session_id, raw=bool(params.get("raw")))
        rows = self._table.rows(self._member)
        wanted = rows if session_id == ALL else {session_id: rows[session_id]}
        ends = {id_: int(row["next_seq"]) - 1 for id_, row in wanted.items()}
        if isinstance(asked, dict):
            begin = {id_: int(asked.get(id_, 0)) for id_ in ends}
        else:
            begin = {id_: end if asked is None else int(asked) for id_, end in ends.items()}
        await self._unsubscribe(params)
        self._followers[session_id] = task = asyncio.create_task(self._follow(session_id, begin, begin == ends, params))
        task.add_done_callback(self._end_with)
        if session_id == ALL:
            return json.dumps({"cursors": begin}).encode()
        after = begin[session_id]
        return json.dumps({"next_seq": ends[session_id] + 1, "first_seq": 1, "after_seq": after}).encode()

    async def _unsubscribe(self, params: dict[str, Any]) -> bytes:
        if (task := self._followers.pop(params["session_id"], None)) is not None:
            task.cancel()
        return b"{}"

    def _end_with(self, task: asyncio.Task[None]) -> None:
        """Close the connection if a subscription failed. The client follows again."""
        if not task.cancelled() and task.exception() is not None:
            self._writer.close()

    async def _follow(self, session_id: str, begin: dict[str, int], only_new: bool, params: dict[str, Any]) -> None:
        """Send the events behind `begin`, then new ones. Sessions that are not in it begin at their first event."""
        await asyncio.sleep(0)  # the answer to the subscription goes first
        types, deltas = params.get("types"), params.get("deltas", True)
        token = ALL if session_id == ALL else subject_token(session_id)
        readers = dict[str, ChainReader]()
        subject = f"clisup.ev.{self._member}.{token}.*"
        last = await self._engine.last(subject) if only_new else None
        async with aclosing(self._engine.read(subject, last.position if last else 0)) as messages:
            async for message in messages:
                _, id_, epoch = read_subject(message.subject)
                if id_ not in readers:
                    newest = await self._engine.last(all_epochs(self._member, id_))
                    first = read_subject(newest.subject)[2] if newest is not None else epoch
                    readers[id_] = ChainReader(begin.get(id_, 0), first)
                for piece in readers[id_].read(epoch, read_chunk_of(id_, message.headers, message.data)):
                    self._writer.write(_frames(id_, piece, types, deltas))
                await self._writer.drain()


def _frames(session_id: str, piece: Piece, types: list[str] | None, deltas: bool) -> bytes:
    """Return the notifications of a piece that the client wants."""
    if isinstance(piece, MissingEvents):
        fields = {"session_id": session_id, "from_seq": piece.first, "to_seq": piece.end - 1, "reason": piece.reason}
        return encode_notification("session/gap", json.dumps(fields).encode())
    return b"".join([line + b"\n" for line in piece.lines if _wanted(line, types, deltas)])


def _wanted(line: bytes, types: list[str] | None, deltas: bool) -> bool:
    if types is None and deltas:
        return True
    kind = event_type(line)
    return (types is None or kind in types) and (deltas or kind != "content_delta")
