"""Handlers of `session/events` and `session/blob`: stored events and large payloads, by page."""

from __future__ import annotations

import base64
import json
from typing import Any

from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.journal.raw_lines import blob_page, with_native
from clisup.daemon.sessions.registry import Manager
from clisup.model.journal import event_type
from clisup.wire.params import BlobParams, EventsParams
from clisup.wire.results import BlobResult

__all__ = ["EventHandlers"]

PAGE_BYTES = 1024 * 1024
"""Size after which a page ends. The last event of a page may exceed this size."""


class EventHandlers:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def table(self) -> Handlers:
        return {"session/events": self.events, "session/blob": self.blob}

    async def events(self, connection: Connection, params: EventsParams) -> bytes:
        session = self._manager.get(params.session_id)
        reader = session.recorder.reader(params.after_seq)
        page: list[bytes] = []
        gaps: list[dict[str, Any]] = []
        size, at = 0, params.after_seq
        try:
            while len(page) < params.limit and size < PAGE_BYTES:
                await connection.share.wait_for_piece()
                block = reader.read()
                if (gap := reader.take_gap()) is not None:
                    gaps.append(gap._asdict())
                    at = gap.to_seq
                if block is None:
                    break
                for stored in block.events():
                    if len(page) >= params.limit or size >= PAGE_BYTES:
                        break
                    at = stored.seq
                    if params.types is None or event_type(stored.event) in params.types:
                        page.append(await with_native(stored, session.dir) if params.raw else stored.event)
                        size += len(page[-1])
        finally:
            reader.close()
        head = b'{"gaps":' + json.dumps(gaps).encode() + b',"events":[' if gaps else b'{"events":['
        eof = b"true" if at + 1 >= session.recorder.next_seq else b"false"
        return head + b",".join(page) + b'],"next_seq":' + str(at + 1).encode() + b',"eof":' + eof + b"}"

    async def blob(self, connection: Connection, params: BlobParams) -> bytes:
        session = self._manager.get(params.session_id)
        data, size = blob_page(session.dir, params.blob, params.offset, params.limit)
        eof = params.offset + len(data) >= size
        return BlobResult(data_base64=base64.b64encode(data).decode(), size=size, eof=eof).to_json()
