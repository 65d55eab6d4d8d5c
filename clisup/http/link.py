"""Connection of an HTTP server to the daemon: one client for all requests, which connects again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from clisup.client.aio import AsyncClient, open_client
from clisup.client.failures import AWAY
from clisup.client.reconnect import may_come_back
from clisup.errors import ClisupError, WorldError

__all__ = ["ANSWER_S", "ClientLink", "daemon_away"]

ANSWER_S = 5.0
"""Seconds for which a request waits for the daemon. After them the answer is that the daemon is away."""

RETRY_S = 0.5


class ClientLink:
    """Client under `name`. `follow` runs beside it, on each new connection."""

    def __init__(self, path: str | None, name: str, follow: Callable[[AsyncClient], Awaitable[None]]) -> None:
        self.path = path
        self._name, self._follow = name, follow
        self._client: AsyncClient | None = None
        self._connected = trio.Event()

    async def run(self) -> None:
        """Keep a client connected. Ends when cancelled, and raises a refusal of the daemon."""
        while True:
            try:
                async with open_client(self.path, name=self._name) as client:
                    self._client = client
                    self._connected.set()
                    await self._follow(client)
            except ClisupError as error:
                if not may_come_back(error):
                    raise
            await trio.sleep(RETRY_S)

    async def client(self) -> AsyncClient:
        """Return the client. Raises `WorldError(daemon_not_running)` if there is none within `ANSWER_S`."""
        with trio.move_on_after(ANSWER_S):
            await self._connected.wait()
        if self._client is None:
            raise daemon_away()
        return self._client


def daemon_away() -> WorldError:
    """Return the error for a daemon that does not answer in time."""
    return WorldError("the daemon does not answer", kind=AWAY[0], hint="clisup status says more")
