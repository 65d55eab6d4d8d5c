"""Process of `clisup gateway`: the HTTP server and the link to the daemon."""

from __future__ import annotations

import socket
from functools import partial

import trio

from clisup.client.aio import AsyncClient
from clisup.doors.gateway.app import make_gateway
from clisup.doors.gateway.metrics import GatewayMetrics
from clisup.doors.gateway.sessions import GatewaySessions
from clisup.doors.gateway.settings import GatewaySettings
from clisup.doors.log import DoorLog
from clisup.http.link import ClientLink
from clisup.http.server import serve

__all__ = ["serve_gateway"]


def serve_gateway(
    settings: GatewaySettings, token: str, listener: socket.socket, daemon: str | None, log_file: str | None
) -> None:
    """Serve until SIGTERM or SIGINT. `daemon` is the path of its socket. Without `log_file` the log goes to stderr.

    Raises `WorldError(storage_failed)` if the log cannot be opened, and a refusal of the daemon.
    """
    link = ClientLink(daemon, "clisup-gateway", _rest)
    sessions = GatewaySessions(settings, link.client)
    place = settings.http.place(listener.getsockname()[1])
    log, metrics = DoorLog(log_file, to_stderr=log_file is None), GatewayMetrics()
    app = make_gateway(settings, token, place, link.client, sessions, log, metrics)

    def note(text: str) -> None:
        metrics.connection_faults.inc()
        log.write(text)

    trio.run(partial(serve, app, settings.http, listener, [link.run, sessions.run], note))


async def _rest(client: AsyncClient) -> None:
    await trio.sleep_forever()
