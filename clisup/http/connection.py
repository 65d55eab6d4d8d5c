"""One connection of an HTTP server: HTTP/1.1 alone, every wait bounded, and a barrier around it.

hypercorn's own `TCPServer` switches to HTTP/2 at a client's word, and its nursery lets the fault of one connection end
the process. This module drives hypercorn's `H11Protocol` instead, whose parser is h11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from clisup.host.log_file import traceback_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HANDSHAKE_S", "IDLE_S", "LINGER_S", "MOST_HEADERS", "HttpConnection", "OneAnswer", "fault_barrier"]

IDLE_S = 15.0
"""Seconds for a client to send a whole head: of its first request, and of the next one on a kept connection."""

HANDSHAKE_S = 10.0
"""Seconds for a TLS handshake."""

LINGER_S = 2.0
"""Seconds for which the rest of a refused body is read, so that the client reads its answer before the connection ends."""

MOST_HEADERS = 100
"""Headers of a request."""

HEADER_BYTES = 32 * 1024
"""Bytes of a request's head."""

SLOW_READER_S = 5.0
"""Seconds after which a client that takes nothing of its answer counts as one that waits."""

_PIECE_BYTES, _PIECES = 16 * 1024, 4
_VERSIONS = (b"1.0", b"1.1")
_UPGRADE = (b"upgrade", b"http2-settings")
_THEIR_TURN = (h11.IDLE, h11.SEND_BODY)


@contextmanager
def fault_barrier(note: Callable[[str], None], where: str) -> Iterator[None]:
    """Turn an exception of the block into one line for `note`. Cancellation and signals pass."""
    try:
        yield
    except BaseExceptionGroup as group:
        faults, rest = group.split(Exception)
        if faults is not None:
            note(f"{where} fault: {traceback_of(faults)}")
        if rest is not None:
            raise rest from None
    except Exception as error:
        note(f"{where} fault: {traceback_of(error)}")


class _Requests(h11.Connection):
    """Parser that refuses what this server does not speak, and ignores offers to speak something else."""

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        if event.http_version not in _VERSIONS:
            raise h11.RemoteProtocolError("only HTTP/1.1 is spoken here", error_status_hint=505)
        if event.method == b"CONNECT":
            raise h11.RemoteProtocolError("this is no proxy", error_status_hint=405)
        if len(event.headers) > MOST_HEADERS:
            raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
        kept = [(name, value) for name, value in event.headers if name not in _UPGRADE]
        if len(kept) == len(event.headers):
            return event
        return h11.Request(method=event.method, target=event.target, headers=kept, http_version=event.http_version)


class OneAnswer:
    """hypercorn's view of the application. An exception is logged, and ends this request alone.

    The end of an answer is sent whole. hypercorn reports `http.disconnect` in the middle of it, which makes an application that
    watches for it cancel the call; and waits for room in the queue of a body that the application does not read.
    """

    def __init__(self, app: ASGIApp, note: Callable[[str], None]) -> None:
        self._app, self._note = app, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *_threads: object) -> None:
        async def send_whole(message: Message | None) -> None:
            if message is not None and (message["type"] != "http.response.body" or message.get("more_body")):
                await send(message)
                return
            with trio.CancelScope(shield=True):
                async with trio.open_nursery(strict_exception_groups=True) as nursery:
                    nursery.start_soon(_drain, receive)
                    await send(message)  # type: ignore[arg-type]
                    nursery.cancel_scope.cancel()

        with fault_barrier(self._note, "request"):
            await self._app(scope, receive, cast("Send", send_whole))
        await send_whole(None)  # an answer that has not begun is a 500


async def _drain(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class HttpConnection:
    """Connection of one client. `run` ends with it; `abort` ends it from outside, at any time."""

    def __init__(
        self, app: OneAnswer, config: Config, context: WorkerContext, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]
    ) -> None:  # fmt: skip
        self._app, self._config, self._context, self._stream = app, config, context, stream
        self._socket = stream.transport_stream.socket if isinstance(stream, trio.SSLStream) else stream.socket
        self._requests = _Requests(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        self._reading, self._send_lock = trio.CancelScope(), trio.Lock()
        self._since, self._sending, self._ended = trio.current_time(), False, False
        self._protocol: H11Protocol

    @property
    def waits_since(self) -> float | None:
        """Time from which the client keeps this connection waiting, or None while an answer is made for it."""
        if self._ended or self._requests.their_state in _THEIR_TURN:
            return self._since
        return self._since if self._sending and trio.current_time() - self._since > SLOW_READER_S else None

    def abort(self) -> None:
        """End the connection at once. Its tasks find the socket closed."""
        self._socket.close()

    def stop(self) -> None:
        """End the connection if it has no request. One with a request ends after its answer."""
        if self._reading.deadline < inf:
            self._reading.cancel()

    async def run(self) -> None:
        """Serve the requests of the client, one after the other."""
        try:
            if isinstance(self._stream, trio.SSLStream):
                with trio.fail_after(HANDSHAKE_S):
                    await self._stream.do_handshake()
            await self._serve()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the client has left, or spoke no TLS
        finally:
            with trio.move_on_after(LINGER_S):
                await self._stream.aclose()

    async def _serve(self) -> None:
        client = parse_socket_addr(self._socket.family, self._socket.getpeername())
        server = parse_socket_addr(self._socket.family, self._socket.getsockname())
        tls = isinstance(self._stream, trio.SSLStream)
        async with TaskGroup() as tasks:
            self._protocol = H11Protocol(
                self._app, self._config, self._context, tasks, ConnectionState({}), tls, client, server, self._take  # type: ignore[arg-type]
            )  # fmt: skip
            self._protocol.connection = self._requests
            self._wait(IDLE_S)
            await self._read()
            await self._protocol.handle(Closed())

    async def _read(self) -> None:
        """Read until the client ends. The protocol waits with a further request until the one before is answered."""
        pieces, rest = trio.open_memory_channel[bytes](_PIECES)
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(self._handle, rest)
            with self._reading, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await self._stream.receive_some(_PIECE_BYTES):
                    if not self._ended:
                        await pieces.send(bytes(data))
            pieces.close()
            nursery.cancel_scope.deadline = trio.current_time() + LINGER_S

    async def _handle(self, pieces: trio.MemoryReceiveChannel[bytes]) -> None:
        async for piece in pieces:
            if not self._ended:
                await self._protocol.handle(RawData(piece))

    def _wait(self, seconds: float) -> None:
        self._since = trio.current_time()
        self._reading.deadline = self._since + seconds

    async def _take(self, event: Event) -> None:
        """Carry out an event of the protocol."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            await self._end()
        elif isinstance(event, Updated) and not self._ended:
            self._wait(IDLE_S if event.idle else inf)

    async def _send(self, data: bytes) -> None:
        async with self._send_lock:
            self._since, self._sending = trio.current_time(), True
            try:
                # Half of a frame would spoil the rest. The kernel ends the connection of a client that does not read.
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(data)
                return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                self._sending = False
        await self._protocol.handle(Closed())

    async def _end(self) -> None:
        """End our side. What the client still sends is read and dropped: a closed socket would reset the answer."""
        if self._ended:
            return
        self._ended = True
        await self._protocol.handle(Closed())
        if isinstance(self._stream, trio.SSLStream):
            self._reading.cancel()
            return
        self._wait(LINGER_S)
        async with self._send_lock:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_eof()
