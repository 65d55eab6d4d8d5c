"""Server: accepts clients, checks identity and number, and survives failing connections."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import trio

from clisup.config.model import DaemonConfig
from clisup.daemon.clients.buffer_budget import BufferBudget, HeldBytes
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.clients.fair_share import FairShare
from clisup.daemon.metrics import Metrics
from clisup.errors import ClisupError, UsageError
from clisup.host.capacity import connections_at_once
from clisup.host.log import event_logger
from clisup.host.shortage import overloaded
from clisup.host.sockets import Peer, comes_from, own_uids, peer_of
from clisup.policy.fair_queue import Share
from clisup.wire.jsonrpc import encode_error

__all__ = ["Server"]

ACCEPT_PAUSE_S = 0.1  # without a pause, EMFILE repeats 150,000 times a second (measured)
REFUSAL_LIMIT_S = 1.0
REFUSALS_LOGGED_S = 1.0  # least time between two log lines about refused clients
DELIVERY_PAUSE_S = 0.01
_log = event_logger()
_BROKEN_LISTENER = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP)


class Server:
    """Server on a listening socket.

    `keepers` returns pids whose descendants may not connect. The exception is the MCP bridge of a session with tools, which
    authenticates by its token; `bridged` tells whether any session has a bridge. `reaper` is the pid of a daemon that is
    the subreaper of its tree, else 0.
    """

    def __init__(
        self,
        config: DaemonConfig,
        handlers: Handlers,
        keepers: Callable[[], AbstractSet[int]],
        metrics: Metrics,
        *,
        bridged: Callable[[], bool] = lambda: False,
        reaper: int = 0,
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._keepers = keepers
        self._bridged = bridged
        self._reaper = reaper
        self._metrics = metrics
        share = Share(config.request_burst, config.request_rate)
        self._shares = FairShare(share, patience_s=config.request_wait_s)
        self._budget = BufferBudget(config.max_held_bytes)
        self._refused_at = -REFUSALS_LOGGED_S
        self._refused = 0
        self.connections: set[Connection] = set()
        self._of_uid: Counter[tuple[int, bool]] = Counter()  # processes of CLIs are counted separately

    def configure(self, config: DaemonConfig) -> None:
        """Apply other settings from now on. Limits of open connections stay as they are."""
        self._config = config
        self._shares.configure(Share(config.request_burst, config.request_rate), patience_s=config.request_wait_s)
        self._budget.limit = config.max_held_bytes

    async def serve(self, listener: socket.socket) -> None:
        """Accept clients until cancelled. The caller cancels this task before closing the listener."""
        sock = trio.socket.from_stdlib_socket(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shares.run)
            while True:
                try:
                    client, _ = await sock.accept()
                except OSError as error:
                    if listener.fileno() < 0:
                        # A client arrived at the moment of the stop: this task was woken before the cancellation, and runs after the close.
                        await trio.sleep_forever()
                    if error.errno in _BROKEN_LISTENER:
                        raise
                    _log.error("cannot accept", error=error.strerror)
                    await trio.sleep(ACCEPT_PAUSE_S)
                    continue
                nursery.start_soon(self._serve_one, client)

    async def deliver_all(self) -> None:
        """Wait until every client has its answers and events. The caller bounds this wait: a client may not read."""
        while any(connection.owes for connection in self.connections):
            await trio.sleep(DELIVERY_PAUSE_S)

    async def _serve_one(self, client: trio.socket.SocketType) -> None:
        """Serve one client. A failure ends this connection, and never the daemon."""
        stream = trio.SocketStream(client)
        try:
            await self._admit(stream, client)
        except Exception:
            _log.exception("connection failed inside the daemon")
            await trio.aclose_forcefully(stream)

    async def _admit(self, stream: trio.SocketStream, client: trio.socket.SocketType) -> None:
        peer = Peer(*peer_of(client))  # type: ignore[arg-type]  # trio's socket has getsockopt as the stdlib's
        try:
            below = peer.uid in own_uids() and comes_from(peer.pid, self._keepers(), self._reaper)
            refusal = self._refusal(peer, below=below)
        except OSError as error:  # no descriptor or memory is left for the check
            below, refusal = True, overloaded("see who the client is", error)
        if refusal is not None:
            self._metrics.count("clisup_refused_connections_total")
            self._log_refusal(peer, refusal)
            await _refuse(stream, refusal)
            return
        config = self._config
        held = HeldBytes(self._budget)
        connection = Connection(
            stream,
            peer,
            self._handlers,
            share=self._shares.connect(peer.pid),
            held=held,
            max_frame=config.max_frame_bytes,
            max_values=config.max_frame_values,
            max_requests=config.max_requests,
            frame_deadline_s=config.frame_deadline_s,
            metrics=self._metrics,
            below=below,
        )
        self._metrics.count("clisup_connections_total")
        self.connections.add(connection)
        self._of_uid[peer.uid, below] += 1
        _log.debug("client connected", uid=peer.uid, pid=peer.pid)
        try:
            await connection.serve()
        finally:
            _log.debug("client gone", uid=peer.uid, pid=peer.pid, client=connection.name)
            held.close()
            self.connections.discard(connection)
            self._of_uid[peer.uid, below] -= 1

    def _refusal(self, peer: Peer, *, below: bool) -> ClisupError | None:
        if peer.uid not in own_uids():
            return UsageError(
                f"permission denied for uid {peer.uid}: version 1 serves the daemon's own user and root",
                kind="permission_denied",
                hint="run a daemon of your own",
            )
        limit = connections_at_once(self._config.max_connections)
        if self._of_uid[peer.uid, below] >= limit:
            short = limit < self._config.max_connections
            return UsageError(
                f"too many connections: {limit} is the limit of one user",
                kind="overloaded",
                hint=f"close connections, or raise {'the limit of open files' if short else 'daemon.max_connections'}",
                retry_after_s=1,
            )
        if below and not self._bridged():
            return UsageError(
                "permission denied: a CLI of this daemon started this process",
                kind="permission_denied",
                hint="ask the user to run this command",
            )
        return None

    def _log_refusal(self, peer: Peer, refusal: ClisupError) -> None:
        """Log refused clients, at most one line a second."""
        self._refused += 1
        if (now := trio.current_time()) - self._refused_at >= REFUSALS_LOGGED_S:
            _log.warning("client refused", uid=peer.uid, pid=peer.pid, reason=refusal.message, since_last=self._refused)
            self._refused_at, self._refused = now, 0


async def _refuse(stream: trio.SocketStream, error: ClisupError) -> None:
    with trio.move_on_after(REFUSAL_LIMIT_S):
        try:
            await stream.send_all(encode_error(None, error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    await trio.aclose_forcefully(stream)
