"""One client: its requests run side by side, its answers and events go out one frame at a time.

Nothing here is shared with another connection but the sessions themselves: a client that does not read blocks only the tasks
of its own connection, and those are bounded by `max_requests` and one task for each subscription.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
import trio
from pydantic import ValidationError

from clisup.core.events import Actor
from clisup.core.journal import event_type
from clisup.daemon.raw import with_native
from clisup.daemon.session import Session
from clisup.errors import ClisupError, UsageError
from clisup.host.peers import Peer
from clisup.rpc.methods import METHODS
from clisup.rpc.models import Params, SubscribeParams
from clisup.rpc.wire import FrameReader, Refusal, Request, encode_error, encode_notification, encode_result

__all__ = ["Connection", "Handlers"]

SEND_LIMIT = 64 * 1024
_log = structlog.get_logger()
Handlers = dict[str, Callable[["Connection", Any], Awaitable[bytes]]]


@dataclass
class Subscription:
    """What one subscription wants."""

    session: Session
    after_seq: int
    types: frozenset[str] | None
    deltas: bool
    raw: bool
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Connection:
    """Serves one stream until its end. A handler raises `ClisupError`; here is the one place where that becomes an answer."""

    def __init__(self, stream: trio.SocketStream, peer: Peer, handlers: Handlers, *, max_frame: int, max_requests: int,
                 frame_deadline_s: float) -> None:  # fmt: skip
        self._stream = stream
        self.peer = peer
        self.name: str | None = None
        self._handlers = handlers
        self._reader = FrameReader(max_frame)
        self._slots = trio.CapacityLimiter(max_requests)
        self._frame_deadline_s = frame_deadline_s
        self._sending = trio.Lock()
        self._requests: dict[str | int, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self.subscriptions: dict[str, Subscription] = {}

    @property
    def actor(self) -> Actor:
        """Who asks, for the journal."""
        return Actor(uid=self.peer.uid, pid=self.peer.pid, client=self.name)

    async def serve(self) -> None:
        """Read requests until the client is gone; after a half-close, answers still go out."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._read()
                if not self.subscriptions:
                    return  # the nursery waits for the running requests
                await trio.sleep_forever()  # half-closed, but following: until a send fails
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            for subscription in self.subscriptions.values():
                subscription.session.recorder.subscribers -= 1
            await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        while True:
            deadline = self._frame_deadline_s if self._reader.pending and self._frame_deadline_s else float("inf")
            with trio.move_on_after(deadline) as scope:
                data = await self._stream.receive_some(SEND_LIMIT)
            if scope.cancelled_caught:
                await self._send(_half_frame(self._frame_deadline_s))
                raise trio.ClosedResourceError
            if not data:
                return
            for item in self._reader.feed(data):
                await self._take(item)

    async def _take(self, item: Request | Refusal) -> None:
        if isinstance(item, Refusal):
            await self._send(item.answer)
            if item.fatal:
                raise trio.ClosedResourceError
        elif item.method == "$/cancel_request":
            wanted = item.params.get("id")
            if isinstance(wanted, str | int) and (scope := self._requests.get(wanted)) is not None:
                scope.cancel()
        elif item.id is not None:
            await self._start(item)

    async def _start(self, request: Request) -> None:
        assert self._nursery is not None and request.id is not None
        if request.id in self._requests:
            error = UsageError(
                "cannot take this id, because a request with it is running", kind="invalid_request", hint="use a new id"
            )
            await self._send(encode_error(request.id, error))
            return
        scope = trio.CancelScope()
        await self._slots.acquire_on_behalf_of(scope)  # beyond its share this connection is not read
        self._requests[request.id] = scope
        self._nursery.start_soon(self._answer, request, scope)

    async def _answer(self, request: Request, scope: trio.CancelScope) -> None:
        assert request.id is not None
        answer = b""
        try:
            with scope:
                answer = await self._result(request)
            if scope.cancelled_caught:
                error = UsageError("the request was cancelled", kind="request_cancelled")
                answer = encode_error(request.id, error)
        finally:
            del self._requests[request.id]
            self._slots.release_on_behalf_of(scope)
        await self._send(answer)
        self._begin_subscription(request)

    async def _result(self, request: Request) -> bytes:
        assert request.id is not None
        try:
            method = METHODS.get(request.method)
            if method is None:
                raise UsageError(
                    f"cannot call {request.method[:64]!r}, because there is no such method",
                    kind="method_not_found",
                    hint="see docs/protocol.md",
                )
            params = _checked(method.params, request)
            return encode_result(request.id, await self._handlers[request.method](self, params))
        except ClisupError as error:
            return encode_error(request.id, error)
        except Exception:
            _log.exception("request failed inside the daemon", method=request.method)
            return encode_error(request.id, _INTERNAL)

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            await self._stream.send_all(frame)

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, params: SubscribeParams, after_seq: int) -> None:
        """Register a subscription; it starts after the answer to its request is out."""
        self.unsubscribe(session.id)
        types = frozenset(params.types) if params.types is not None else None
        self.subscriptions[session.id] = Subscription(session, after_seq, types, params.deltas, params.raw)
        session.recorder.subscribers += 1

    def unsubscribe(self, session_id: str) -> None:
        """End a subscription; none is no error."""
        if (old := self.subscriptions.pop(session_id, None)) is not None:
            old.session.recorder.subscribers -= 1
            old.scope.cancel()

    def _begin_subscription(self, request: Request) -> None:
        if request.method == "session/subscribe" and self._nursery is not None:
            subscription = self.subscriptions.get(str(request.params.get("session_id")))
            if subscription is not None and not subscription.scope.cancel_called:
                self._nursery.start_soon(self._follow, subscription)

    async def _follow(self, subscription: Subscription) -> None:
        """Read the journal at this client's pace: what is stored, then what comes."""
        recorder = subscription.session.recorder
        reader = recorder.reader(subscription.after_seq)
        try:
            with subscription.scope:
                while True:
                    news = recorder.news
                    while events := reader.read():
                        frames = [self._frame(subscription, event.event, event.line) for event in events]
                        await self._send_many([frame for frame in frames if frame])
                    await news.wait()
        finally:
            reader.close()

    def _frame(self, subscription: Subscription, event: bytes, line: bytes) -> bytes:
        if subscription.types is not None or not subscription.deltas:
            kind = event_type(event)
            if (subscription.types is not None and kind not in subscription.types) or (
                kind == "content_delta" and not subscription.deltas
            ):
                return b""
        if subscription.raw:
            event = with_native(event, line, subscription.session.dir)
        return encode_notification("session/event", event)

    async def _send_many(self, frames: list[bytes]) -> None:
        """In pieces of about 64 KiB, so that an answer of another request gets its turn in between."""
        piece: list[bytes] = []
        size = 0
        for frame in frames:
            piece.append(frame)
            size += len(frame)
            if size >= SEND_LIMIT:
                await self._send(b"".join(piece))
                piece, size = [], 0
        if piece:
            await self._send(b"".join(piece))


_INTERNAL = ClisupError("cannot answer, because of a fault in the daemon", hint="its log says more")


def _checked(model: type[Params], request: Request) -> Params:
    try:
        return model.model_validate(request.params)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])[:128] or "params"
        raise UsageError(
            f"cannot call {request.method}, because {where!r} is wrong: {problem['msg']}",
            hint="see docs/protocol.md",
            param=where,
        ) from None


def _half_frame(deadline_s: float) -> bytes:
    error = UsageError(
        f"cannot wait longer than {deadline_s:g} s for the rest of a frame",
        kind="invalid_request",
        hint="end each frame with a newline",
        limit="frame_deadline_s",
        value=deadline_s,
    )
    return encode_error(None, error)
