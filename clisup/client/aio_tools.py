"""Serving a session's tools: each `tool/call` of the daemon runs here, concurrently with the others, and never twice.

    async def run(call: ToolCall) -> ToolReply:
        return ToolReply(str(eval_(call.input["expression"])))

    async with open_client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(serve_tools, client, session_id, run)

After a restart the daemon sends open calls again, by the same ids. A running tool is then awaited, and a finished one is answered
with its result. That holds for one `serve_tools`: another process does not know the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from clisup.client.aio_tool_calls import KEPT_BYTES, KEPT_RESULTS, Run, ToolCall, ToolCalls, ToolReply, ToolRuns
from clisup.errors import ClisupError

if TYPE_CHECKING:
    from clisup.client.aio import AsyncClient

__all__ = ["KEPT_BYTES", "KEPT_RESULTS", "ToolCall", "ToolCalls", "ToolReply", "serve_tools"]


async def serve_tools(
    client: AsyncClient,
    session_id: str,
    run: Run,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the tools of a session, until cancelled or the session is closed; across restarts of the daemon.

    `run` is called once for each call. The model reads its errors. `run` is cancelled if the daemon does not want the result
    any longer. `task_status` starts once calls are served. Raises the daemon's refusal: `session_not_found`, `unsupported`
    for a session without tools, and `daemon_not_running` if the daemon stays away.
    """
    refused: ClisupError | None = None
    async with trio.open_nursery() as nursery:
        runs = ToolRuns(nursery, run)
        client._tool_calls.register(session_id, runs)
        try:
            await _stay_registered(client, session_id, task_status)
        except ClisupError as error:
            refused = error  # raised outside of the nursery, which would wrap the error
        finally:
            client._tool_calls.unregister(session_id, runs)
            nursery.cancel_scope.cancel()
    if refused is not None:
        raise refused


async def _stay_registered(client: AsyncClient, session_id: str, task_status: trio.TaskStatus[None]) -> None:
    """Send `tool/serve` on each new connection, until the session is closed."""
    begun = False
    while True:
        gone = client._gone
        try:
            await client._call_surely("tool/serve", session_id=session_id)
        except ClisupError as error:
            if begun and error.kind in ("session_closed", "session_not_found"):
                return
            raise
        if not begun:
            begun = True
            task_status.started()
        if gone is client._gone:
            await gone.wait()
