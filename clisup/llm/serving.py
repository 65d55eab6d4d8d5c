"""Tools at work: while the block lasts, what the model calls is run here.

async with serving(client, session_id, [add, search]):
    await session.prompt("What is 2 + 2?")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from clisup.client.aio import AsyncClient
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools
from clisup.client.nurseries import open_plain_nursery
from clisup.errors import UsageError
from clisup.llm.caller_desk import CallerDesk
from clisup.llm.replies import reply_of
from clisup.llm.tools import Tool, ToolDefinition

__all__ = ["SLACK_S", "serving", "to_wire"]

SLACK_S = 30.0
"""So much longer than the caller the daemon waits for the result of a `ToolDefinition`: the caller's time ends first."""


def to_wire(tools: Iterable[Tool | ToolDefinition]) -> list[dict[str, Any]]:
    """The `tools` of `session/new`. Raises `UsageError` where a name stands twice."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if tool.name in found:
            raise UsageError(f"cannot offer two tools of the name {tool.name!r}", hint="give each a name of its own")
        told = found[tool.name] = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.input_schema),
        }
        if isinstance(tool, ToolDefinition):
            told["timeout_s"] = told["wait_s"] = tool.waits_s + SLACK_S
        elif tool.timeout_s is not None:
            told["timeout_s"] = float(tool.timeout_s)
    return list(found.values())


@asynccontextmanager
async def serving(
    client: AsyncClient, session_id: str, tools: Iterable[Tool], *, desk: CallerDesk | None = None
) -> AsyncIterator[None]:
    """Run these tools for the session, side by side and each call once, also where the daemon is restarted or killed meanwhile.

    The session was opened with them (`to_wire`). Calls of the tools of a `desk` wait there. At the end of the block what still runs
    is cancelled. Raises what `serve_tools` does, at the beginning or out of the block.
    """
    by_name = {tool.name: tool for tool in tools}

    async def run(call: ToolCall) -> ToolReply:
        if desk is not None and call.name in desk.names:
            return await desk.wait(call)
        if (tool := by_name.get(call.name)) is None:
            return ToolReply(f"There is no tool {call.name!r} here.", is_error=True)

        async def work() -> ToolReply:
            output = await tool.run(call.input)
            return reply_of(output.content, output.is_error)

        return await (work() if desk is None else desk.run(call, work))

    async with open_plain_nursery() as nursery:
        await nursery.start(partial(serve_tools, client, session_id, run))
        yield
