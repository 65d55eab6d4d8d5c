"""Accepting clients: who may speak, how many, and what becomes of a connection whose task fails."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import structlog
import trio

from clisup.config.model import DaemonConfig
from clisup.daemon.clients.buffer_budget import Holdings
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.clients.fair_share import Turnstile
from clisup.daemon.ops.metrics import Metrics
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host.sockets.peers import Peer, comes_from, own_uids, peer_of
from clisup.policy.fair_queue import Share
from clisup.wire.jsonrpc import encode_error

__all__ = ["Server"]

ACCEPT_PAUSE_S = 0.1  # after EMFILE a bare retry would spin at 150,000 a second (measured)
REFUSAL_LIMIT_S = 1.0
REFUSALS_LOGGED_S = 1.0  # between two lines about refused clients
SETTLE_PAUSE_S = 0.01
_log = structlog.get_logger()
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class Server:
    """Serves a listening socket. `keepers` gives the pids whose descendants have no say, but for the bridge of a session with
    tools (`bridged`: there is one), which proves by its token that it is one. `reaper` is the pid of a daemon that is the
    subreaper of its tree."""

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
        self._turnstile = Turnstile(share, patience_s=config.request_wait_s)
        self._holdings = Holdings(config.max_held_bytes)
        self._refused_at = -REFUSALS_LOGGED_S
        self._refused = 0
        self.connections: set[Connection] = set()
        self._of_uid: Counter[tuple[int, bool]] = Counter()  # what CLIs started takes no place of another client's

    def renew(self, config: DaemonConfig) -> None:
        """Other settings, from now on; what a connection was told at its beginning stays for its life."""
        self._config = config
        self._turnstile.renew(Share(config.request_burst, config.request_rate), patience_s=config.request_wait_s)
        self._holdings.limit = config.max_held_bytes

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled. Whoever closes the listener has cancelled this first."""
        sock = trio.socket.from_stdlib_socket(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turnstile.run)
            while True:
                try:
                    client, _ = await sock.accept()
                except OSError as error:
                    if listener.fileno() < 0:
                        # A client came in the very moment of the stop: we were woken before the cancellation, and run after the close.
                        await trio.sleep_forever()
                    if error.errno not in _EXHAUSTED:
                        raise
                    _log.error("cannot accept", error=error.strerror)
                    await trio.sleep(ACCEPT_PAUSE_S)
                    continue
                nursery.start_soon(self._serve_one, client)

    async def settle(self) -> None:
        """Wait until every client has what it is owed. One that does not read never has: the caller bounds this."""
        while any(connection.owes for connection in self.connections):
            await trio.sleep(SETTLE_PAUSE_S)

    async def _serve_one(self, client: trio.socket.SocketType) -> None:
        stream = trio.SocketStream(client)
        peer = Peer(*peer_of(client))  # type: ignore[arg-type]  # trio's socket has getsockopt as the stdlib's
        try:
            below = peer.uid in own_uids() and comes_from(peer.pid, self._keepers(), self._reaper)
            refusal = self._refusal(peer, below=below)
        except OSError as error:  # no descriptor or memory is left to look with
            below, refusal = True, _overloaded(error)
        if refusal is not None:
            self._metrics.count("clisup_refused_connections_total")
            self._log_refusal(peer, refusal)
            await _refuse(stream, refusal)
            return
        config = self._config
        holding = self._holdings.of_a_connection()
        connection = Connection(
            stream,
            peer,
            self._handlers,
            turn=self._turnstile.turn(peer.pid),
            holding=holding,
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
        except Exception:
            _log.exception("connection failed inside the daemon", uid=peer.uid, pid=peer.pid)
        finally:
            _log.debug("client gone", uid=peer.uid, pid=peer.pid, client=connection.name)
            holding.close()
            self.connections.discard(connection)
            self._of_uid[peer.uid, below] -= 1

    def _refusal(self, peer: Peer, *, below: bool) -> ClisupError | None:
        if peer.uid not in own_uids():
            return UsageError(
                f"cannot serve uid {peer.uid}: version 1 serves the daemon's own user and root",
                kind="permission_denied",
                hint="run a daemon of your own",
            )
        if self._of_uid[peer.uid, below] >= self._config.max_connections:
            return UsageError(
                f"cannot serve more than {self._config.max_connections} connections of one user",
                kind="overloaded",
                hint="close some, or raise daemon.max_connections",
                retry_after_s=1,
            )
        if below and not self._bridged():
            return UsageError(
                "cannot serve a process that a CLI of this daemon started",
                kind="permission_denied",
                hint="ask its user",
            )
        return None

    def _log_refusal(self, peer: Peer, refusal: ClisupError) -> None:
        """Not each: a flood of connections is no flood of the log."""
        self._refused += 1
        if (now := trio.current_time()) - self._refused_at >= REFUSALS_LOGGED_S:
            _log.warning("client refused", uid=peer.uid, pid=peer.pid, reason=refusal.message, since_last=self._refused)
            self._refused_at, self._refused = now, 0


def _overloaded(error: OSError) -> ClisupError:
    return WorldError(
        f"cannot tell now who the client is, because of: {error.strerror}",
        kind="overloaded",
        hint="try again; see the daemon's limits of open files and memory",
        retry_after_s=1,
    )


async def _refuse(stream: trio.SocketStream, error: ClisupError) -> None:
    with trio.move_on_after(REFUSAL_LIMIT_S):
        try:
            await stream.send_all(encode_error(None, error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    await trio.aclose_forcefully(stream)
