"""Connection to an editor: JSON-RPC in lines, with requests in both directions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import trio

from clisup.client.raw import JsonObject
from clisup.doors.log import DoorLog
from clisup.wire.jsonrpc import ClientAnswer, FrameReader, Request

__all__ = ["MAX_FRAME", "EditorConnection", "EditorRefused"]

MAX_FRAME = 64 * 1024 * 1024
"""Bytes of one message of an editor. A longer one ends the door, because its end is unknown."""

MAX_VALUES = 1_000_000
"""JSON values in one message of an editor."""

_QUEUED = 64  # messages that wait for the editor to read
_CHUNK = 64 * 1024


class EditorRefused(Exception):
    """Error answer of the editor to a request of this door."""


class EditorConnection:
    """Connection over a pair of streams. Run `write_queued` in a task; sending waits while the editor does not read."""

    def __init__(self, receive: trio.abc.ReceiveStream, send: trio.abc.SendStream, log: DoorLog) -> None:
        self._receive, self._send_stream, self._log = receive, send, log
        self._queue, self._queued = trio.open_memory_channel[bytes](_QUEUED)
        self._waiting: dict[str, trio.MemorySendChannel[ClientAnswer]] = {}
        self._last_id = 0
        self._unwritten = 0

    async def frames(self) -> AsyncIterator[Request]:
        """Yield the editor's requests and notifications until it closes its end. Malformed messages are refused here."""
        reader = FrameReader(MAX_FRAME, MAX_VALUES)
        while data := await self._received():
            reader.feed(data)
            while (frame := reader.next()) is not None:
                if isinstance(frame, Request):
                    yield frame
                elif isinstance(frame, ClientAnswer):
                    self._answered(frame)
                else:
                    self._log.write("refused a malformed message")
                    await self._send(frame.answer)
                    if frame.fatal:
                        return

    async def write_queued(self) -> None:
        """Write what is sent, until the editor closes its end."""
        try:
            async for line in self._queued:
                await self._send_stream.send_all(line)
                self._unwritten -= 1
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._log.write("the editor has closed its end")

    async def flush(self, limit_s: float) -> None:
        """Wait until all queued messages are written, at most `limit_s` seconds."""
        with trio.move_on_after(limit_s):
            while self._unwritten:
                await trio.sleep(0.01)

    async def answer(self, id_: str | int, result: JsonObject | None) -> None:
        """Answer a request of the editor."""
        await self._send_frame({"id": id_, "result": result if result is not None else {}})

    async def refuse(self, id_: str | int, error: JsonObject) -> None:
        """Answer a request of the editor with an error."""
        self._log.write(f"answered request {id_} with error {error['code']} ({error.get('data', {}).get('kind')})")
        await self._send_frame({"id": id_, "error": error})

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
        await self._send_frame({"method": method, "params": params})

    async def ask(self, method: str, params: JsonObject) -> Any:
        """Send a request and return its result. If this is cancelled, the request is withdrawn by `$/cancel_request`.

        Raises `EditorRefused`.
        """
        self._last_id += 1
        id_ = f"clisup-{self._last_id}"
        send, receive = trio.open_memory_channel[ClientAnswer](1)
        self._waiting[id_] = send
        try:
            await self._send_frame({"id": id_, "method": method, "params": params})
            answer = await receive.receive()
        except trio.Cancelled:
            with trio.move_on_after(1, shield=True):
                await self.notify("$/cancel_request", {"requestId": id_})
            raise
        finally:
            self._waiting.pop(id_, None)
        if answer.error is not None:
            raise EditorRefused(str(answer.error.get("code") if isinstance(answer.error, dict) else "?"))
        return answer.result

    def _answered(self, answer: ClientAnswer) -> None:
        """Deliver an answer. One to a withdrawn request is ignored."""
        if (waiting := self._waiting.pop(str(answer.id), None)) is not None:
            waiting.send_nowait(answer)

    async def _received(self) -> bytes:
        try:
            return bytes(await self._receive.receive_some(_CHUNK))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _send_frame(self, frame: JsonObject) -> None:
        line = json.dumps({"jsonrpc": "2.0", **frame}, ensure_ascii=False, separators=(",", ":"))
        await self._send(line.encode("utf-8", "replace") + b"\n")

    async def _send(self, line: bytes) -> None:
        self._unwritten += 1
        await self._queue.send(line)
