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
from clisup.llm.messages import TextBlock
from clisup.llm.tools import Tool, ToolOutput

__all__ = ["serving", "to_wire"]


def to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The `tools` of `session/new`. Raises `UsageError` where a name stands twice."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if tool.name in found:
            raise UsageError(f"cannot offer two tools of the name {tool.name!r}", hint="give each a name of its own")
        found[tool.name] = {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        if tool.timeout_s is not None:
            found[tool.name]["timeout_s"] = float(tool.timeout_s)
    return list(found.values())


@asynccontextmanager
async def serving(client: AsyncClient, session_id: str, tools: Iterable[Tool]) -> AsyncIterator[None]:
    """Run these tools for the session, side by side and each call once, also where the daemon is restarted or killed meanwhile.

    The session was opened with them (`to_wire`). At the end of the block what still runs is cancelled. Raises what
    `serve_tools` does, at the beginning or out of the block.
    """
    by_name = {tool.name: tool for tool in tools}

    async def run(call: ToolCall) -> ToolReply:
        if (tool := by_name.get(call.name)) is None:
            return ToolReply(f"There is no tool {call.name!r} here.", is_error=True)
        return _reply(await tool.run(call.input))

    async with open_plain_nursery() as nursery:
        await nursery.start(partial(serve_tools, client, session_id, run))
        yield


def _reply(output: ToolOutput) -> ToolReply:
    """As the wire has it: where a cache may end is no matter of a tool's result."""
    if isinstance(output.content, str):
        return ToolReply(output.content, output.is_error)
    blocks = [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image", "media_type": block.media_type, "data": block.data}
        for block in output.content
    ]
    return ToolReply(blocks, output.is_error)
