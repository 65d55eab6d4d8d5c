"""Client of a daemon's socket that survives the daemon: a request is repeated until it has an answer. asyncio."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from clisup.errors import ClisupError, error_from_wire

__all__ = ["Line", "persistent_call"]

LINE_LIMIT = 64 * 1024 * 1024
PAUSE_S = 0.2
_PASSING = ("shutting_down", "overloaded", "session_busy", "box_away", "fleet_away", "daemon_not_running")


class Line:
    """One connection. `call` raises `OSError` or `EOFError` where it breaks, `ClisupError` where the daemon refuses."""

    def __init__(self, path: str) -> None:
        self._path, self._number = path, 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, **params: Any) -> Any:
        """Return the result of a request. Notifications are dropped."""
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path, limit=LINE_LIMIT)
        reader, writer = self._streams
        self._number += 1
        try:
            request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            while frame := json.loads(await self._line(reader)):
                if frame.get("id") == self._number:
                    break
        except (OSError, EOFError, asyncio.CancelledError):
            self.close()
            raise
        if "error" in frame:
            raise error_from_wire(frame["error"])
        return frame["result"]

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def close(self) -> None:
        """Close the connection. The next call opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def persistent_call(line: Line, method: str, **params: Any) -> Any:
    """Return the result, however often the daemon dies meanwhile. Raises `ClisupError` for a refusal that lasts."""
    while True:
        try:
            return await line.call(method, **params)
        except (OSError, EOFError):
            pass
        except ClisupError as error:
            if error.kind not in _PASSING:
                raise
        await asyncio.sleep(PAUSE_S)
