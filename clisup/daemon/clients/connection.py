"""Connection of one client. Requests run side by side; answers and events go out one frame at a time.

Connections share only the sessions. A client that does not read blocks only the tasks of its own connection, and
`max_requests` and the number of subscriptions bound these tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from select import epoll
from typing import TYPE_CHECKING, Any

import trio
from pydantic import ValidationError

from clisup.daemon.clients.buffer_budget import HeldBytes
from clisup.daemon.clients.fair_share import LONG_FRAME, ClientShare
from clisup.daemon.clients.frame_writer import FrameWriter
from clisup.daemon.clients.subscription import Subscription
from clisup.daemon.metrics import OTHER, Metrics
from clisup.errors import KINDS, ClisupError, UsageError, WorldError, doctor_hint
from clisup.host.log import LOG, event_logger
from clisup.host.shortage import shortage_of
from clisup.host.sockets import Peer
from clisup.model.events import Actor
from clisup.model.structs import wrong_field
from clisup.wire.jsonrpc import (
    ClientAnswer,
    FrameReader,
    FrameRefusal,
    Request,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from clisup.wire.methods import METHODS
from clisup.wire.params import Params

if TYPE_CHECKING:
    from clisup.daemon.tools.calls import SessionTools

__all__ = ["Connection", "Handlers"]

FIRST_READ = 8 * 1024  # bytes, for a connection without a half frame
READ_LIMIT = 64 * 1024
HELD_FROM = 4096  # bytes of the smallest answer that counts as buffered
MAX_UNSENT = 8  # unsent answers of a connection; with more, the daemon stops reading from this client
PROVE_LIMIT_S = 10.0  # for a process of a CLI to authenticate as an MCP bridge
MAX_ASKED = 1024  # unanswered requests to the client; the client may answer by `tool/result` instead
LAST_ERROR_S = 1.0  # for the error that ends a connection, because the client may not read
RETRY_AFTER_S = 1
_log = event_logger()
Handlers = dict[str, Callable[["Connection", Any], Awaitable[bytes]]]


class Connection:
    """Connection for one stream until its end. Handlers raise `ClisupError`; only this class turns errors into answers."""

    def __init__(self, stream: trio.SocketStream, peer: Peer, handlers: Handlers, *, share: ClientShare, held: HeldBytes,
                 max_frame: int, max_values: int, max_requests: int, frame_deadline_s: float, metrics: Metrics,
                 below: bool = False) -> None:  # fmt: skip
        self._stream = stream
        self.peer = peer
        self.below = below  # a process that a CLI started: only the methods of a bridge are allowed
        self.bridge: SessionTools | None = None  # set once the client has authenticated as a bridge
        self.serves: set[SessionTools] = set()
        self._waiters: dict[str | int, Callable[[ClientAnswer], None]] = {}  # by the id of a request to the client
        self._asked = 0
        self._reading = True
        self._outbox: deque[bytes] = deque()  # requests and notifications to the client, for `_send_outbox`
        self.name: str | None = None
        self.share = share
        self._handlers = handlers
        self._held = held
        self._metrics = metrics
        self._half = 0  # bytes of a half frame, counted as held
        self._pages = trio.Lock()
        self._unsent = 0  # answers that wait until the client reads
        self._sent = trio.Event()
        self._reader = FrameReader(max_frame, max_values)
        self._slots = trio.CapacityLimiter(max_requests)
        self._frame_deadline_s = frame_deadline_s
        self._writer = FrameWriter(stream, held)
        self._requests: dict[str | int, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self._opened: Subscription | None = None
        self.subscriptions: dict[str, Subscription] = {}

    @property
    def actor(self) -> Actor:
        """Description of the client for the journal."""
        return Actor(uid=self.peer.uid, pid=self.peer.pid, client=self.name)

    @property
    def owes(self) -> bool:
        """True if the client still has to get an answer or an event."""
        behind = any(subscription.behind for subscription in self.subscriptions.values())
        return behind or bool(self._requests) or self._writer.busy

    async def serve(self) -> None:
        """Serve requests until the client is gone. After a half-close, answers and events still go out."""
        try:
            async with trio.open_nursery() as watch:
                if self.below:
                    watch.start_soon(self._prove_or_leave)
                async with trio.open_nursery() as self._nursery:
                    try:
                        await self._read()
                    finally:
                        self._reading = False
                    watch.start_soon(self._end_at_hangup, self._nursery.cancel_scope)
                watch.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._nursery = None
            for key in list(self.subscriptions):
                self.unsubscribe(key)
            for tools in self.serves:
                tools.disconnected(self)
            await trio.aclose_forcefully(self._stream)

    async def _end_at_hangup(self, requests: trio.CancelScope) -> None:
        """Cancel waits and subscriptions of a client that closed both directions, because such tasks would stay forever."""
        try:
            with epoll() as hangup:
                hangup.register(self._stream.socket.fileno(), 0)  # EPOLLHUP needs no mask; a half-close causes none
                await trio.lowlevel.wait_readable(hangup.fileno())
        except OSError as error:  # no descriptor is left
            _log.warning("half-closed client not watched", error=error.strerror)
        requests.cancel()

    async def _prove_or_leave(self) -> None:
        await trio.sleep(PROVE_LIMIT_S)
        if self.bridge is None:
            raise trio.ClosedResourceError

    async def _read(self) -> None:
        with trio.CancelScope() as scope:
            self._held.on_evict = scope.cancel
            await self._read_frames()
        if self._held.evicted:
            with trio.move_on_after(LAST_ERROR_S):  # the client may not read
                await self._send(_over_budget(self._held.limit))
            raise trio.ClosedResourceError

    async def _read_frames(self) -> None:
        left = self._frame_deadline_s
        while True:
            half, began = self._reader.held, trio.current_time()
            self._held.add(half - self._half)
            self._half = half
            patience = max(0.0, left) if half and self._frame_deadline_s else float("inf")
            with self.share.resting, trio.move_on_after(patience) as scope:
                data = await self._stream.receive_some(READ_LIMIT if half else FIRST_READ)
            if scope.cancelled_caught:
                await self._send(_half_frame(self._frame_deadline_s))
                raise trio.ClosedResourceError
            if not data:
                return
            self._reader.feed(data)
            if half and not self._reader.ready:
                await self.share.wait_for_piece(LONG_FRAME)
            # The limit is for the whole frame, so that single bytes cannot keep half a frame forever.
            left = left - (trio.current_time() - began) if half and not self._reader.ready else self._frame_deadline_s
            while self._reader.ready:
                while self._unsent >= MAX_UNSENT:
                    self._sent = trio.Event()
                    await self._sent.wait()
                on_time = await self.share.wait_for_request()  # over its share, the daemon does not read from it
                if (item := self._reader.next()) is not None:
                    await self._handle(item if on_time else _overloaded(item))

    async def _handle(self, item: Request | ClientAnswer | FrameRefusal) -> None:
        if isinstance(item, FrameRefusal):
            self._metrics.count("clisup_refused_frames_total")
            await self._send(item.answer)
            if item.fatal:
                raise trio.ClosedResourceError
        elif isinstance(item, ClientAnswer):
            if (deliver := self._waiters.pop(item.id, None)) is not None:  # otherwise too late
                deliver(item)
        elif item.method == "$/cancel_request":
            wanted = item.params.get("id")
            if isinstance(wanted, str | int) and (scope := self._requests.get(wanted)) is not None:
                scope.cancel()
        elif item.id is not None:
            await self._start(item)

    async def _start(self, request: Request) -> None:
        assert self._nursery is not None and request.id is not None
        if request.id in self._requests:
            error = UsageError("a request with this id is still running", kind="invalid_request", hint="use a new id")
            await self._send(encode_error(request.id, error))
            return
        scope = trio.CancelScope()
        try:
            self._slots.acquire_on_behalf_of_nowait(scope)  # saves a round of the scheduler
        except trio.WouldBlock:
            await self._slots.acquire_on_behalf_of(scope)  # no reading meanwhile
        self._requests[request.id] = scope
        self._nursery.start_soon(self._answer, request, scope)

    async def _answer(self, request: Request, scope: trio.CancelScope) -> None:
        assert request.id is not None
        opened = None
        paged = (method := METHODS.get(request.method)) is not None and method.large
        self._unsent += paged  # a large answer waits for the large answers before it
        try:
            with scope:
                if paged:
                    await self._pages.acquire()
                answer = await self._result(request)
                opened, self._opened = self._opened, None  # no await between the handler and here
            if scope.cancelled_caught:
                error = UsageError("the request was cancelled", kind="request_cancelled")
                self._metrics.requested(_known(request.method), error.kind)
                answer = encode_error(request.id, error)
            del self._requests[request.id]
            self._unsent += not paged
            held = len(answer) if len(answer) >= HELD_FROM else 0
            self._held.add(held)
            await self._send(answer)
            self._held.add(-held)
            self._unsent -= 1
            self._sent.set()
        finally:
            if paged and self._pages.statistics().owner is trio.lowlevel.current_task():
                self._pages.release()
            self._slots.release_on_behalf_of(scope)  # after sending, so that unread answers cannot pile up
        if opened is not None and self._nursery is not None:
            self._nursery.start_soon(self._follow, opened)

    async def _result(self, request: Request) -> bytes:
        assert request.id is not None
        try:
            method = METHODS.get(request.method)
            if method is None:
                raise UsageError(
                    f"unknown method {request.method[:64]!r}",
                    kind="method_not_found",
                    hint="see docs/reference/protocol.md",
                )
            if self.below and method.role != "bridge":
                raise UsageError(
                    "permission denied: a CLI of this daemon started this process",
                    kind="permission_denied",
                    hint="ask the user to run this command",
                )
            handler = self._handlers[request.method]
            answer = encode_result(request.id, await handler(self, _checked(method.params, request)))
            self._metrics.requested(request.method, None)
            return answer
        except ClisupError as error:
            return self._failed(request, error)
        except Exception as error:
            if (shortage := shortage_of(error)) is not None:
                return self._failed(request, shortage)
            _log.exception("request failed inside the daemon", method=request.method)
            return self._failed(request, _INTERNAL)

    def _failed(self, request: Request, error: ClisupError) -> bytes:
        """Return the error answer, with a hint and without secrets. A path may hold anything."""
        _log.debug("request refused", method=request.method[:64], kind=error.kind, client=self.name)
        hint = error.hint or doctor_hint(KINDS[error.kind].explanation, error.data.get("backend"))
        error.message, error.hint = LOG.redact(error.message), LOG.redact(hint)
        self._metrics.requested(_known(request.method), error.kind)
        return encode_error(request.id, error)

    async def _send(self, frame: bytes) -> None:
        await self._writer.write(frame)
        await trio.lowlevel.checkpoint()  # other tasks run between the answers of a busy client

    # -- requests and notifications to the client ------------------------------------------------------------------------------

    def ask(self, method: str, params: bytes, deliver: Callable[[ClientAnswer], None]) -> None:
        """Send a request. `deliver` gets the client's answer, if any. `params` is JSON."""
        self._asked += 1
        self._waiters[id_ := f"d{self._asked}"] = deliver
        if len(self._waiters) > MAX_ASKED:
            del self._waiters[next(iter(self._waiters))]
        self._post(encode_request(id_, method, params))

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self._post(encode_notification(method, params))

    def _post(self, frame: bytes) -> None:
        """Queue a frame without waiting. Unread frames count as held bytes, which bound the queue."""
        if self._nursery is None or not (self._reading or self._nursery.child_tasks):
            return  # the connection is ending
        self._outbox.append(frame)
        self._held.add(len(frame))
        if len(self._outbox) == 1:
            self._nursery.start_soon(self._send_outbox)

    async def _send_outbox(self) -> None:
        while self._outbox:
            await self._send(frame := self._outbox[0])
            self._held.add(-len(frame))
            self._outbox.popleft()

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscribe(self, key: str, subscription: Subscription) -> None:
        """Register a subscription to a session, or to all by `*`. The subscription starts after the answer."""
        for old in list(self.subscriptions) if key == "*" else [key]:
            self.unsubscribe(old)
        self._opened = self.subscriptions[key] = subscription

    def unsubscribe(self, key: str) -> None:
        """End a subscription, if any."""
        if (old := self.subscriptions.pop(key, None)) is not None:
            old.end()

    async def _follow(self, subscription: Subscription) -> None:
        """Run a subscription. An unreadable journal ends the connection with an error."""
        try:
            await subscription.follow(self._writer, self.share)
        except ClisupError as error:
            _log.error("subscription failed", kind=error.kind, error=error.message)
            await self._send(encode_error(None, error))
            raise trio.ClosedResourceError from None


def _known(method: str) -> str:
    """Return the method for the metrics. All unknown names count as one method."""
    return method if method in METHODS else OTHER


_INTERNAL = ClisupError("internal error of the daemon", hint="see the daemon's log")


def _checked(model: type[Params], request: Request) -> Params:
    try:
        params = model.model_validate(request.params)
        request.params.clear()  # free a prompt of up to 16 MiB before the turn runs
        return params
    except ValidationError as error:
        where, reason = wrong_field(error)
        raise UsageError(
            f"{request.method}: invalid {where or 'params'!r}: {reason}",
            hint="see docs/reference/protocol.md",
            param=where or "params",
        ) from None


def _overloaded(item: Request | ClientAnswer | FrameRefusal) -> Request | ClientAnswer | FrameRefusal:
    """Refuse a request that waited too long. Notifications and answers pass: each costs little and may end other work."""
    if not isinstance(item, Request) or item.id is None:
        return item
    error = WorldError(
        "overloaded: this connection asks for more than its share, and other clients go first",
        kind="overloaded",
        hint="send fewer requests at once, or raise daemon.request_rate and daemon.request_wait_s",
        retry_after_s=RETRY_AFTER_S,
    )
    return FrameRefusal(encode_error(item.id, error))


def _over_budget(limit: int) -> bytes:
    error = WorldError(
        f"overloaded: half frames and unread answers of all clients exceed {limit} bytes",
        kind="overloaded",
        hint="complete each frame, read all answers, or raise daemon.max_held_bytes",
        retry_after_s=RETRY_AFTER_S,
        limit="max_held_bytes",
        value=limit,
    )
    return encode_error(None, error)


def _half_frame(deadline_s: float) -> bytes:
    error = UsageError(
        f"the rest of a frame did not arrive within {deadline_s:g} s",
        kind="invalid_request",
        hint="end each frame with a newline",
        limit="frame_deadline_s",
        value=deadline_s,
    )
    return encode_error(None, error)
