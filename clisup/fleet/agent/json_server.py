"""Server of JSON-RPC for one client of the agent: requests by turns, and notifications between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from clisup import __version__
from clisup.errors import ClisupError, UsageError
from clisup.fleet.agent.daemon_link import PROTOCOL_VERSION
from clisup.wire.jsonrpc import DEFAULT_MAX_FRAME, FrameRefusal, Request, encode_error, encode_result, read_frame

__all__ = ["JsonServer", "Method", "introduction"]

Method = Callable[[dict[str, Any]], Awaitable[bytes]]
"""Handler of a method: from the params to the JSON of the result. Raises `ClisupError`."""


def introduction(instance: str, *, copy: bool = False) -> bytes:
    """Return the result of `initialize`. `copy`: what follows is read from a copy."""
    server = {"name": "clisup-fleet", "version": __version__, "pid": 0, "instance_id": instance, "copy": copy}
    whole = {
        "protocol_version": PROTOCOL_VERSION,
        "server": server,
        "limits": {"max_frame_bytes": DEFAULT_MAX_FRAME},
        "backends": [],
    }
    return json.dumps(whole).encode()


class JsonServer:
    """Server with a table of methods. `otherwise` is the error for a method that is not in it."""

    def __init__(self, methods: Mapping[str, Method], otherwise: Callable[[str], ClisupError]) -> None:
        self._methods, self._otherwise = methods, otherwise

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the client ends. Raises `OSError` for a client that is gone."""
        while line := await reader.readline():
            frame = read_frame(line)
            if isinstance(frame, FrameRefusal):
                writer.write(frame.answer)
            elif isinstance(frame, Request) and frame.id is not None:
                writer.write(await self._answer(frame, frame.id))
            await writer.drain()

    async def _answer(self, request: Request, id_: str | int) -> bytes:
        try:
            method = self._methods.get(request.method)
            if method is None:
                raise self._otherwise(request.method)
            return encode_result(id_, await method(request.params))
        except ClisupError as error:
            return encode_error(id_, error)
        except (KeyError, TypeError, ValueError):
            return encode_error(id_, UsageError(f"{request.method}: the params are invalid"))
