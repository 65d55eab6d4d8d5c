"""Endpoint of one dialect: the body of a request in, one answer or a stream out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, cast

import trio
from starlette.responses import JSONResponse

from clisup.doors.gateway.answers import AnswerInfo, AnswerStream, Dialect, WholeAnswer
from clisup.doors.gateway.failures import GatewayError, HttpFailure, refused
from clisup.doors.gateway.guard import RequestRecord
from clisup.doors.gateway.metrics import GatewayMetrics
from clisup.doors.gateway.reading import AnswerBegun, AnswerPlace, Item, TextPiece, read_answer
from clisup.doors.gateway.requests import AnswerRequest
from clisup.doors.gateway.sessions import GatewaySessions
from clisup.doors.gateway.settings import GatewaySettings
from clisup.doors.gateway.turns import AskedBy, TurnDesk
from clisup.http.bodies import BodyRefused, read_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

__all__ = ["BODY_S", "FIRST_S", "PING_S", "AnswerDesk", "AnswerEndpoint"]

BODY_S = 30.0
"""Seconds for a client to send a whole body."""

FIRST_S = 5.0
"""Seconds for which a stream waits for its first piece, so that an early failure has a status of its own."""

PING_S = 15.0
"""Seconds after which a silent stream sends a comment."""

RETRY_AFTER_S = 2.0
"""Seconds after which a client over the limit may try again."""

_BODY_KINDS = {408: "too_slow", 413: "too_large"}
_PING = b": still here\n\n"


class AnswerDesk:
    """Parts that the endpoints share."""

    def __init__(
        self, settings: GatewaySettings, turns: TurnDesk, sessions: GatewaySessions, metrics: GatewayMetrics
    ) -> None:
        self.settings, self.turns, self.sessions, self.metrics = settings, turns, sessions, metrics
        self._running = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count a request for the block. Raises `GatewayError(overloaded)` over the limit."""
        if self._running >= self.settings.max_requests:
            message = f"{self.settings.max_requests} requests are at work, and that is the limit"
            raise GatewayError(HttpFailure(429, "overloaded", message, retry_after_s=RETRY_AFTER_S, retryable=True))
        self._running += 1
        self.metrics.running.inc()
        try:
            yield
        finally:
            self._running -= 1
            self.metrics.running.dec()


class AnswerEndpoint:
    """ASGI application for `POST` on the path of one dialect."""

    def __init__(self, desk: AnswerDesk, dialect: Dialect) -> None:
        self._desk, self._dialect = desk, dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = cast("Mapping[str, str]", scope["headers_read"])
        with self._desk.slot():
            body = await _body(receive, headers, self._desk.settings.max_body_bytes)
            if body is None:
                return
            by = AskedBy(headers.get("idempotency-key"), headers.get("x-clisup-session"), body)
            request = self._dialect.read(body, self._desk.settings.tool_timeout_s)
            del body
            failures: list[GatewayError] = []
            async with trio.open_nursery(strict_exception_groups=True) as nursery:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                try:
                    await self._serve(nursery, scope, receive, send, request, by)
                except GatewayError as error:
                    failures.append(error)
                nursery.cancel_scope.cancel()
            if failures:
                raise failures[0]

    async def _serve(
        self, nursery: trio.Nursery, scope: Scope, receive: Receive, send: Send, request: AnswerRequest, by: AskedBy
    ) -> None:
        record = cast("RequestRecord", scope["record"])
        place, ignored = await self._desk.turns.place(request, by, self._dialect)
        record.model, record.session = str(place.model), place.session.id
        headers = {"x-clisup-session": place.session.id}
        headers |= {"x-clisup-ignored": ", ".join(ignored)} if ignored else {}
        try:
            if request.stream:
                await self._stream(nursery, send, request, place, headers, record)
            else:
                await self._whole(scope, receive, send, request, place, headers)
        finally:
            self._desk.sessions.release(place.session.id, place.ends, over=place.over)

    async def _whole(
        self, scope: Scope, receive: Receive, send: Send, request: AnswerRequest, place: AnswerPlace,
        headers: dict[str, str],
    ) -> None:  # fmt: skip
        """Send one answer."""
        begun = None
        async with aclosing(read_answer(place, deltas=False)) as items:
            async for item in items:
                if isinstance(item, AnswerBegun):
                    begun = item
                elif isinstance(item, WholeAnswer):
                    assert begun is not None
                    body = self._dialect.whole(_info(begun, request, place), item)
                    await JSONResponse(body, headers=headers)(scope, receive, send)
                    return

    # -- streams

    async def _stream(
        self, nursery: trio.Nursery, send: Send, request: AnswerRequest, place: AnswerPlace, headers: dict[str, str],
        record: RequestRecord,
    ) -> None:  # fmt: skip
        """Send a stream. Raises `GatewayError` before its first byte."""
        out, writer, said = _Out(send, headers), cast("AnswerStream | None", None), False
        items = _Items(nursery, read_answer(place, deltas=True))
        try:
            while True:
                item = await items.next(out)
                if isinstance(item, AnswerBegun):
                    writer = self._dialect.stream(_info(item, request, place))
                    out.begin = writer.begin()
                    continue
                assert writer is not None
                if isinstance(item, TextPiece):
                    said = True
                    await out.write(writer.text(item.text))
                elif isinstance(item, WholeAnswer):
                    await out.write(writer.end(item), last=True)
                    return
                elif said:
                    raise refused("the CLI took back text that was sent already", kind="answer_retracted")
        except GatewayError as error:
            if not out.begun or writer is None:
                raise
            record.kind = error.failure.kind
            await out.write(writer.fail(error.failure), last=True)


class _Out:
    """Body of a stream. Its headers are sent with its first frame; `begin` are the frames before it."""

    def __init__(self, send: Send, headers: dict[str, str]) -> None:
        self._send = send
        self._headers = {**headers, "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
        self.begun, self.begin = False, b""

    async def write(self, frames: bytes, *, last: bool = False) -> None:
        if not self.begun:
            self.begun = True
            raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        frames, self.begin = self.begin + frames, b""
        await self._send({"type": "http.response.body", "body": frames, "more_body": not last})


class _Items:
    """Items of an answer, read by a task of their own, so that a silent stream can be kept alive."""

    def __init__(self, nursery: trio.Nursery, items: AsyncGenerator[Item, None]) -> None:
        send, self._receive = trio.open_memory_channel[Item | GatewayError](0)
        nursery.start_soon(self._pump, items, send)

    async def _pump(self, items: AsyncGenerator[Item, None], send: trio.MemorySendChannel[Item | GatewayError]) -> None:
        async with send, aclosing(items):
            try:
                async for item in items:
                    await send.send(item)
            except GatewayError as error:
                await send.send(error)

    async def next(self, out: _Out) -> Item:
        """Return the next item. Raises `GatewayError` as the items do."""
        while True:
            with trio.move_on_after(PING_S if out.begun else FIRST_S):
                item = await self._receive.receive()
                if isinstance(item, GatewayError):
                    raise item
                return item
            await out.write(_PING)


def _info(begun: AnswerBegun, request: AnswerRequest, place: AnswerPlace) -> AnswerInfo:
    return AnswerInfo(begun.id, request.model, begun.created, place.session.id, request)


async def _body(receive: Receive, headers: Mapping[str, str], most: int) -> bytes | None:
    """Return the body, or None if the client has left. Raises `GatewayError` for a body that is too large, too slow, or compressed."""
    if headers.get("content-encoding", "identity") != "identity":
        raise refused("a compressed body is not read here", status=415)
    try:
        return await read_body(receive, most, BODY_S)
    except BodyRefused as error:
        if error.status not in _BODY_KINDS:
            return None
        raise refused(str(error), kind=_BODY_KINDS[error.status], status=error.status) from None
