"""Sockets of this box for the other members: one for each, and one for questions about the fleet.

A member's socket speaks the protocol of a daemon. While the member answers, a tunnel leads to its daemon. While it is away,
the copy answers. A socket stays a member's own: no other box and no other daemon answers at it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from clisup.errors import ClisupError, WorldError
from clisup.fleet.agent.copy_server import CopyServer
from clisup.fleet.agent.fleet_server import FleetServer
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.agent.table import Table
from clisup.fleet.agent.tunnel_client import NearTunnel
from clisup.fleet.engine import Engine
from clisup.host.files import make_private_dir
from clisup.host.log import event_logger
from clisup.locations import SOCKET_PATH_LIMIT
from clisup.wire.jsonrpc import DEFAULT_MAX_FRAME, encode_error

__all__ = ["Sockets"]

MAX_CLIENTS = 64
"""Connections at the socket of one member."""
MAX_BOXES = 200
LOOK_S = 1.0
GOODBYE_S = 1.0
_UCRED = struct.Struct("3i")
_log = event_logger()
_Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Sockets:
    """All sockets of the agent. They are open while the engine is away, too, and say so."""

    def __init__(
        self, settings: AgentSettings, table: Callable[[], Table | None], engine: Callable[[], Engine | None]
    ) -> None:
        self._settings, self._table, self._engine = settings, table, engine
        self._servers: dict[str, asyncio.Server] = {}
        self._clients: dict[str, int] = {}
        self._refused: set[str] = set()

    async def run(self) -> None:
        """Keep a socket for each member until cancelled."""
        fleet = FleetServer(self._settings, self._table, self._engine)
        directory = self._settings.sockets_dir
        make_private_dir(directory)
        try:
            await self._listen("", self._settings.agent_socket, fleet.serve)
            for file in sorted(os.listdir(directory)):  # of an earlier agent: the engine may be away now
                if file.endswith(".sock"):
                    await self._listen_for(file.removesuffix(".sock"))
            while True:
                table = self._table()
                for member in table.members if table is not None else ():
                    await self._listen_for(member)
                await asyncio.sleep(LOOK_S)
        finally:
            for server in self._servers.values():
                server.close()

    async def _listen_for(self, member: str) -> None:
        if member == self._settings.member.name or member in self._servers or len(self._servers) > MAX_BOXES:
            return
        path = os.path.join(self._settings.sockets_dir, f"{member}.sock")
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            if member not in self._refused:
                self._refused.add(member)
                _log.error("no socket for a box", box=member, path=path, limit=SOCKET_PATH_LIMIT)
            return
        await self._listen(member, path, lambda reader, writer: self._serve(member, reader, writer))

    async def _listen(self, name: str, path: str, serve: _Serve) -> None:
        async def checked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                if not _is_own(writer):
                    return
                if self._clients.get(name, 0) >= MAX_CLIENTS:
                    error = WorldError(f"{MAX_CLIENTS} connections are the most at one socket", kind="overloaded")
                    await _say_goodbye(writer, error)
                    return
                self._clients[name] = self._clients.get(name, 0) + 1
                try:
                    await serve(reader, writer)
                finally:
                    self._clients[name] -= 1
            except (
                OSError,
                ValueError,
                asyncio.CancelledError,
            ):  # the client is gone or sent too much, or the agent ends
                pass
            except ClisupError as error:
                await _say_goodbye(writer, error)
            finally:
                with suppress(OSError, RuntimeError):
                    writer.close()

        with suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        self._servers[name] = await asyncio.start_unix_server(checked, sock=listener, limit=DEFAULT_MAX_FRAME)

    async def _serve(self, member: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client of a member: by a tunnel, or from the copy while the member is away."""
        engine, table = self._engine(), self._table()
        if engine is None or table is None:
            raise WorldError("the engine of the fleet is away", kind="fleet_away")
        tunnel = NearTunnel(engine, self._settings.member, member)
        if await tunnel.open():
            await tunnel.carry(reader, writer)
        else:
            await CopyServer(engine, table, member).serve(reader, writer)


def _is_own(writer: asyncio.StreamWriter) -> bool:
    """Tell whether the client runs as this user, or as root."""
    peer = writer.get_extra_info("socket")
    _, uid, _ = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return uid in (os.geteuid(), 0)


async def _say_goodbye(writer: asyncio.StreamWriter, error: ClisupError) -> None:
    """Send the error that ends a connection."""
    with suppress(OSError, TimeoutError):
        writer.write(encode_error(None, error))
        await asyncio.wait_for(writer.drain(), GOODBYE_S)
