"""Requests to the daemon that a door may repeat after a restart of the daemon."""

from __future__ import annotations

from typing import Any

from clisup.client.aio import AsyncClient
from clisup.client.aio_requests import call_surely
from clisup.client.options import given

__all__ = ["surely"]


async def surely(client: AsyncClient, method: str, **params: Any) -> Any:
    """Send a request without the params that are None, again after each restart, and return its result.

    For requests that may be sent twice. Raises the daemon's refusal, and `daemon_not_running` if the daemon stays away.
    """
    return await call_surely(client.call, lambda: client.server, method, given(params))
