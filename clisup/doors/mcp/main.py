"""Process of `clisup mcp`: stdin and stdout are the connection to the MCP client."""

from __future__ import annotations

from collections.abc import Callable

import trio

from clisup.client.aio import open_client
from clisup.client.nurseries import open_plain_nursery
from clisup.doors.log import DoorLog
from clisup.doors.mcp.bounds import AgentBounds
from clisup.doors.mcp.server import McpDoor
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["serve_agent"]


def serve_agent(bounds: AgentBounds, connect: Callable[[], None], log_file: str | None = None) -> int:
    """Serve the MCP client at stdin and stdout until it closes its end. Return the exit code.

    `connect` makes sure that a daemon runs, and may start one. If that fails, each tool gets the reason as its error.
    Raises `WorldError(storage_failed)` if the log cannot be opened.
    """
    return trio.run(_serve, bounds, connect, DoorLog(log_file))


async def _serve(bounds: AgentBounds, connect: Callable[[], None], log: DoorLog) -> int:
    try:
        await trio.to_thread.run_sync(connect)
        async with open_client(name="clisup-mcp") as client, open_plain_nursery() as nursery:
            await McpDoor(client, bounds, nursery, log).run()
    except ClisupError as error:
        log.write(f"no daemon: {error}")
        async with open_plain_nursery() as nursery:
            await McpDoor(None, bounds, nursery, log, problem=error).run()
        return error.exit_code
    return EXIT_OK
