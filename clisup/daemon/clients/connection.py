"""One client: its requests run side by side, its answers and events go out one frame at a time.

Nothing here is shared with another connection but the sessions themselves: a client that does not read blocks only the tasks
of its own connection, and those are bounded by `max_requests` and one task for each subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from select import epoll
from typing import TYPE_CHECKING, Any

import structlog
import trio
from pydantic import ValidationError

from clisup.daemon.clients.buffer_budget import Holding
from clisup.daemon.clients.fair_share import LONG_FRAME, Turn
from clisup.daemon.clients.frame_writer import Outlet
from clisup.daemon.clients.subscription import Subscription
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.explained import ERRORS, doctor_hint
from clisup.host.log import LOG
from clisup.host.sockets.peers import Peer
from clisup.model.events import Actor
from clisup.model.refusing import wrong_field
from clisup.ops.figures import OTHER, Figures
from clisup.wire.jsonrpc import (
    Answer,
    FrameReader,
    Refusal,
    Request,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from clisup.wire.methods import METHODS
from clisup.wire.models import Params

if TYPE_CHECKING:
    from clisup.daemon.tools.calls import SessionTools

__all__ = ["Connection", "Handlers"]

FIRST_READ = 8 * 1024  # of a connection that holds no half frame
READ_LIMIT = 64 * 1024
HELD_FROM = 4096  # bytes of an answer that is counted among what is held: eight smaller ones are nothing
MAX_UNSENT = 8  # answers of a connection that wait to be sent: with more it is not read
PROVE_LIMIT_S = 10.0  # for what a CLI started to say whose bridge it is
MAX_HEARD = 1024  # requests of ours whose answer is remembered: a client may answer by `tool/result` instead, for ever
LAST_WORD_S = 1.0  # for the refusal that ends a connection: its client may not read
RETRY_AFTER_S = 1
_log = structlog.get_logger()
Handlers = dict[str, Callable[["Connection", Any], Awaitable[bytes]]]


class Connection:
    """Serves one stream until its end. A handler raises `ClisupError`; here is the one place where that becomes an answer."""

    def __init__(self, stream: trio.SocketStream, peer: Peer, handlers: Handlers, *, turn: Turn, holding: Holding,
                 max_frame: int, max_values: int, max_requests: int, frame_deadline_s: float, figures: Figures,
                 below: bool = False) -> None:  # fmt: skip
        self._stream = stream
        self.peer = peer
        self.below = below  # what a CLI of ours started: the methods of a bridge are all that it may call
        self.bridge: SessionTools | None = None  # whose bridge it has proved to be
        self.serves: set[SessionTools] = set()
        self._heard: dict[str | int, Callable[[Answer], None]] = {}  # who waits for the answer to a request of ours
        self._asked = 0
        self._reading = True
        self._said: deque[bytes] = deque()  # by ourselves, and waiting for `_speak`
        self.name: str | None = None
        self.turn = turn
        self._handlers = handlers
        self._holding = holding
        self._figures = figures
        self._half = 0  # bytes of a half frame that are counted as held
        self._pages = trio.Lock()
        self._unsent = 0  # answers that wait for the client to read
        self._sent = trio.Event()
        self._reader = FrameReader(max_frame, max_values)
        self._slots = trio.CapacityLimiter(max_requests)
        self._frame_deadline_s = frame_deadline_s
        self._outlet = Outlet(stream, holding)
        self._requests: dict[str | int, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self._opened: Subscription | None = None
        self.subscriptions: dict[str, Subscription] = {}

    @property
    def actor(self) -> Actor:
        """Who asks, for the journal."""
        return Actor(uid=self.peer.uid, pid=self.peer.pid, client=self.name)

    @property
    def owes(self) -> bool:
        """Is there an answer, or an event, that the client has not got yet?"""
        behind = any(subscription.behind for subscription in self.subscriptions.values())
        return behind or bool(self._requests) or self._outlet.busy

    async def serve(self) -> None:
        """Read requests until the client is gone; after a half-close, answers and events still go out."""
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
        """A client that has closed both ways hears nothing: its waits and subscriptions would be held for ever."""
        try:
            with epoll() as hangup:
                hangup.register(self._stream.socket.fileno(), 0)  # EPOLLHUP comes unasked; a half-close alone is none
                await trio.lowlevel.wait_readable(hangup.fileno())
        except OSError as error:  # no descriptor left: its place is wanted
            _log.warning("half-closed client not watched", error=error.strerror)
        requests.cancel()

    async def _prove_or_leave(self) -> None:
        await trio.sleep(PROVE_LIMIT_S)
        if self.bridge is None:
            raise trio.ClosedResourceError

    async def _read(self) -> None:
        with trio.CancelScope() as scope:
            self._holding.on_forfeit = scope.cancel
            await self._read_frames()
        if self._holding.forfeited:
            with trio.move_on_after(LAST_WORD_S):  # it may be that the client does not read
                await self._send(_held_too_much(self._holding.limit))
            raise trio.ClosedResourceError

    async def _read_frames(self) -> None:
        left = self._frame_deadline_s
        while True:
            half, began = self._reader.held, trio.current_time()
            self._holding.change(half - self._half)
            self._half = half
            patience = max(0.0, left) if half and self._frame_deadline_s else float("inf")
            with self.turn.resting, trio.move_on_after(patience) as scope:
                data = await self._stream.receive_some(READ_LIMIT if half else FIRST_READ)
            if scope.cancelled_caught:
                await self._send(_half_frame(self._frame_deadline_s))
                raise trio.ClosedResourceError
            if not data:
                return
            self._reader.feed(data)
            if half and not self._reader.ready:
                await self.turn.piece(LONG_FRAME)
            # The time is the frame's and not the byte's, or a drip would hold half a frame for ever.
            left = left - (trio.current_time() - began) if half and not self._reader.ready else self._frame_deadline_s
            while self._reader.ready:
                while self._unsent >= MAX_UNSENT:
                    self._sent = trio.Event()
                    await self._sent.wait()
                on_time = await self.turn.request()  # beyond its share this connection is not read
                if (item := self._reader.next()) is not None:
                    await self._take(item if on_time else _waited_too_long(item))

    async def _take(self, item: Request | Answer | Refusal) -> None:
        if isinstance(item, Refusal):
            self._figures.refused_frames += 1
            await self._send(item.answer)
            if item.fatal:
                raise trio.ClosedResourceError
        elif isinstance(item, Answer):
            if (heard := self._heard.pop(item.id, None)) is not None:  # else it is not waited for any more
                heard(item)
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
        try:
            self._slots.acquire_on_behalf_of_nowait(scope)  # a round of the scheduler less than the other
        except trio.WouldBlock:
            await self._slots.acquire_on_behalf_of(scope)  # with so many running this connection is not read
        self._requests[request.id] = scope
        self._nursery.start_soon(self._answer, request, scope)

    async def _answer(self, request: Request, scope: trio.CancelScope) -> None:
        assert request.id is not None
        opened = None
        paged = (method := METHODS.get(request.method)) is not None and method.large
        self._unsent += paged  # it will wait for those before it
        try:
            with scope:
                if paged:
                    await self._pages.acquire()
                answer = await self._result(request)
                opened, self._opened = self._opened, None  # nothing awaits between its handler and here
            if scope.cancelled_caught:
                error = UsageError("the request was cancelled", kind="request_cancelled")
                self._figures.requested(_known(request.method), error.kind)
                answer = encode_error(request.id, error)
            del self._requests[request.id]
            self._unsent += not paged
            held = len(answer) if len(answer) >= HELD_FROM else 0
            self._holding.change(held)
            await self._send(answer)
            self._holding.change(-held)
            self._unsent -= 1
            self._sent.set()
        finally:
            if paged and self._pages.statistics().owner is trio.lowlevel.current_task():
                self._pages.release()
            self._slots.release_on_behalf_of(scope)  # after the sending: answers that nobody reads must not pile up
        if opened is not None and self._nursery is not None:
            self._nursery.start_soon(self._follow, opened)

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
            if self.below and method.role != "bridge":
                raise UsageError(
                    "cannot serve a process that a CLI of this daemon started",
                    kind="permission_denied",
                    hint="ask its user",
                )
            handler = self._handlers[request.method]
            answer = encode_result(request.id, await handler(self, _checked(method.params, request)))
            self._figures.requested(request.method, None)
            return answer
        except ClisupError as error:
            return self._failed(request, error)
        except Exception:
            _log.exception("request failed inside the daemon", method=request.method)
            return self._failed(request, _INTERNAL)

    def _failed(self, request: Request, error: ClisupError) -> bytes:
        """The answer to people and programs: without a secret, for a path may hold anything, and never without a next step."""
        _log.debug("request refused", method=request.method[:64], kind=error.kind, client=self.name)
        hint = error.hint or doctor_hint(ERRORS.get(error.kind), error.data.get("backend"))
        error.message, error.hint = LOG.redact(error.message), LOG.redact(hint)
        self._figures.requested(_known(request.method), error.kind)
        return encode_error(request.id, error)

    async def _send(self, frame: bytes) -> None:
        await self._outlet.write(frame)
        await trio.lowlevel.checkpoint()  # who asks much without a pause must not hold the others up

    # -- what the daemon says by itself ------------------------------------------------------------------------------

    def ask(self, method: str, params: bytes, heard: Callable[[Answer], None]) -> None:
        """Send a request; `heard` is called with its answer, if one comes. `params` is JSON already."""
        self._asked += 1
        self._heard[id_ := f"d{self._asked}"] = heard
        if len(self._heard) > MAX_HEARD:
            del self._heard[next(iter(self._heard))]
        self._say(encode_request(id_, method, params))

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self._say(encode_notification(method, params))

    def _say(self, frame: bytes) -> None:
        """In order, without waiting here. What the client does not read counts as held by it, and ends it in the end."""
        if self._nursery is None or not (self._reading or self._nursery.child_tasks):
            return  # it is about to end
        self._said.append(frame)
        self._holding.change(len(frame))
        if len(self._said) == 1:
            self._nursery.start_soon(self._speak)

    async def _speak(self) -> None:
        while self._said:
            await self._send(frame := self._said[0])
            self._holding.change(-len(frame))
            self._said.popleft()

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscribe(self, key: str, subscription: Subscription) -> None:
        """Register a subscription, to a session or to `*` (which stands for all of them); it starts after the answer."""
        for old in list(self.subscriptions) if key == "*" else [key]:
            self.unsubscribe(old)
        self._opened = self.subscriptions[key] = subscription

    def unsubscribe(self, key: str) -> None:
        """End a subscription; none is no error."""
        if (old := self.subscriptions.pop(key, None)) is not None:
            old.end()

    async def _follow(self, subscription: Subscription) -> None:
        """A journal that cannot be read ends the connection, with a word that says why."""
        try:
            await subscription.follow(self._outlet, self.turn)
        except ClisupError as error:
            _log.error("subscription failed", kind=error.kind, error=error.message)
            await self._send(encode_error(None, error))
            raise trio.ClosedResourceError from None


def _known(method: str) -> str:
    """For the figures, where no client may make up names."""
    return method if method in METHODS else OTHER


_INTERNAL = ClisupError("cannot answer, because of a fault in the daemon", hint="its log says more")


def _checked(model: type[Params], request: Request) -> Params:
    try:
        params = model.model_validate(request.params)
        request.params.clear()  # a prompt of 16 MiB is not to be held for as long as its turn runs
        return params
    except ValidationError as error:
        where, reason = wrong_field(error)
        raise UsageError(
            f"cannot call {request.method}, because {where or 'params'!r} is wrong: {reason}",
            hint="see docs/protocol.md",
            param=where or "params",
        ) from None


def _waited_too_long(item: Request | Answer | Refusal) -> Request | Answer | Refusal:
    """What becomes of a frame whose turn did not come. A notification costs nothing, and may end a request; answers were asked for."""
    if not isinstance(item, Request) or item.id is None:
        return item
    error = WorldError(
        "cannot take this request, because this connection asks for more than its share and others go first",
        kind="overloaded",
        hint="ask for less at once, or raise daemon.request_rate and daemon.request_wait_s",
        retry_after_s=RETRY_AFTER_S,
    )
    return Refusal(encode_error(item.id, error))


def _held_too_much(limit: int) -> bytes:
    error = WorldError(
        f"cannot hold more than {limit} bytes of half frames and unread answers for all clients together",
        kind="overloaded",
        hint="end the frames that you begin, read the answers that you ask for, or raise daemon.max_held_bytes",
        retry_after_s=RETRY_AFTER_S,
        limit="max_held_bytes",
        value=limit,
    )
    return encode_error(None, error)


def _half_frame(deadline_s: float) -> bytes:
    error = UsageError(
        f"cannot wait longer than {deadline_s:g} s for the rest of a frame",
        kind="invalid_request",
        hint="end each frame with a newline",
        limit="frame_deadline_s",
        value=deadline_s,
    )
    return encode_error(None, error)
