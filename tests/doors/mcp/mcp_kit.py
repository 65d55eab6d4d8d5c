"""An MCP client by the official package, with `clisup mcp` as its server in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import trio
from harness import Harness
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, Implementation, TextContent

BOUND_S = 120.0


class McpCaller:
    """Client with its server. `process` is the server's, `progress` holds the lines that it has told."""

    def __init__(self, client: Client, process: psutil.Process) -> None:
        self.client, self.process = client, process
        self.progress: list[str] = []

    async def call(self, name: str, **arguments: Any) -> Any:
        """Return the structured answer of a tool. A refusal of the tool is an AssertionError with its text."""
        result = await self.raw(name, **arguments)
        assert not result.is_error, text_of(result)
        answer = result.structured_content
        return answer["result"] if isinstance(answer, dict) and set(answer) == {"result"} else answer

    async def refusal(self, name: str, **arguments: Any) -> Any:
        """Return the error of a tool that must fail."""
        result = await self.raw(name, **arguments)
        assert result.is_error, result
        text = text_of(result)
        return json.loads(text[text.index("{") :]) if "{" in text else text

    async def raw(self, name: str, **arguments: Any) -> CallToolResult:
        """Call a tool."""

        async def progressed(_progress: float, _total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        with trio.fail_after(BOUND_S):
            result = await self.client.call_tool(name, arguments, progress_callback=progressed)
        assert isinstance(result, CallToolResult)
        return result

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Poll until the condition is true, and return its value."""
        with trio.fail_after(BOUND_S):
            while not (found := await condition()):
                await trio.sleep(0.05)
        return found


def text_of(result: CallToolResult) -> str:
    """Return the text of an answer."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


@asynccontextmanager
async def mcp_door(daemon: Harness, *options: str, name: str = "tester", **env: str) -> AsyncIterator[McpCaller]:
    """Start `clisup mcp` in the daemon's directory, and connect to it."""
    before = {child.pid for child in psutil.Process().children()}
    root = str(Path(__file__).parents[3])
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "clisup", "mcp", *options],
        env={**daemon.env, "CLISUP_SOCKET": daemon.socket, "PYTHONPATH": root, **env},
        cwd=str(daemon.cwd),
    )
    async with Client(server, client_info=Implementation(name=name, version="1")) as client:
        (process,) = [
            child for child in psutil.Process().children()
            if child.pid not in before and "mcp" in child.cmdline()
        ]  # fmt: skip
        yield McpCaller(client, process)


def environment_without_daemon(tmp_path: Path) -> dict[str, str]:
    """Return variables with which no daemon is found or started."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLISUP_SOCKET": str(tmp_path / "none")}
