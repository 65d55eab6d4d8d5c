"""Tools at work: while the block lasts, this process runs the calls of the model.

async with serving(client, session_id, [add, search]):
    await session.prompt("What is 2 + 2?")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from clisup.client.aio import AsyncClient
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools
from clisup.client.nurseries import open_plain_nursery
from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.messages import ImageBlock, TextBlock
from clisup.llm.tools import Tool, ToolDefinition

__all__ = ["SLACK_S", "RunCall", "reply_of", "runner", "serve_calls", "serving", "to_wire"]

SLACK_S = 30.0
"""Extra seconds that the daemon waits for the result of a `ToolDefinition`, so that the caller's own time ends first."""

RunCall = Callable[[ToolCall], Awaitable[ToolReply]]


def to_wire(tools: Iterable[Tool | ToolDefinition]) -> list[JsonObject]:
    """Return the `tools` of `session/new`. Raises `UsageError` for a repeated name."""
    found: dict[str, JsonObject] = {}
    for tool in tools:
        if tool.name in found:
            raise UsageError(f"two tools have the name {tool.name!r}", hint="give each tool its own name")
        wire = found[tool.name] = tool_to_wire(tool)
        if isinstance(tool, ToolDefinition):
            wire["timeout_s"] = wire["wait_s"] = tool.waits_s + SLACK_S
        elif tool.timeout_s is not None:
            wire["timeout_s"] = float(tool.timeout_s)
    return list(found.values())


def tool_to_wire(tool: Tool | ToolDefinition) -> JsonObject:
    """Return the wire form of a tool, as `session/prompt` takes it too."""
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}


def reply_of(content: str | Sequence[TextBlock | ImageBlock], is_error: bool) -> ToolReply:
    """Return the answer to a `tool/call`. Cache marks of blocks are left out."""
    if isinstance(content, str):
        return ToolReply(content, is_error)
    blocks = [block.model_dump(mode="json", include={"type", "text", "media_type", "data"}) for block in content]
    return ToolReply(blocks, is_error)


def runner(tools: Iterable[Tool]) -> RunCall:
    """Return a function that runs calls of these tools."""
    by_name = {tool.name: tool for tool in tools}

    async def run(call: ToolCall) -> ToolReply:
        if (tool := by_name.get(call.name)) is None:
            return ToolReply(f"There is no tool {call.name!r} here.", is_error=True)
        output = await tool.run(call.input)
        return reply_of(output.content, output.is_error)

    return run


@asynccontextmanager
async def serve_calls(client: AsyncClient, session_id: str, run: RunCall) -> AsyncIterator[None]:
    """Answer the session's tool calls by `run` until the end of the block. Raises the exceptions of `serve_tools`."""
    async with open_plain_nursery() as nursery:
        await nursery.start(partial(serve_tools, client, session_id, run))
        yield


@asynccontextmanager
async def serving(client: AsyncClient, session_id: str, tools: Iterable[Tool]) -> AsyncIterator[None]:
    """Run these tools for a session that was opened with them (`to_wire`).

    Calls run side by side, each call once, even if the daemon restarts or is killed meanwhile. The end of the block cancels
    running calls. Raises the exceptions of `serve_tools`, at the beginning or out of the block.
    """
    async with serve_calls(client, session_id, runner(tools)):
        yield
