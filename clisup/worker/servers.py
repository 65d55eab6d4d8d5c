"""The MCP servers of a session, by the official mcp package: started with the worker, and asked side by side."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import trio

from clisup.worker import VERSION
from clisup.worker.api import load
from clisup.worker.names import api_names, full_name

__all__ = ["START_S", "BadServers", "Result", "Servers", "Tool", "read_config"]

START_S = 30.0
"""Seconds for a server to start and to name its tools: claude's own limit (MCP_TIMEOUT)."""

RESULT_MAX = 400_000
"""Characters of a result's text that reach the model. What is cut is said."""


class BadServers(Exception):
    """The configuration of the servers cannot be read. The text says why."""


@dataclass(frozen=True)
class Tool:
    """One tool of one server."""

    server: str
    name: str
    description: str
    input_schema: Mapping[str, Any]
    reads_only: bool

    @property
    def full_name(self) -> str:
        """Return its name as events and rules have it."""
        return full_name(self.server, self.name)


@dataclass(frozen=True)
class Result:
    """What a tool gave: a text, or blocks of the Anthropic API."""

    content: Any
    is_error: bool = False


def read_config(path: str | None) -> dict[str, Mapping[str, Any]]:
    """Return the servers of a file in claude's format, by name. Raises `BadServers`."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            return {str(name): dict(entry) for name, entry in json.loads(file.read())["mcpServers"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadServers(f"Error: Invalid MCP configuration: {error}") from None


class Servers:
    """The servers that are there, and their tools by full name. `hidden` are variables that no server gets: the API's key."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]], hidden: frozenset[str]) -> None:
        self._entries, self._hidden = entries, hidden
        self._clients: dict[str, Any] = {}
        self.tools: dict[str, Tool] = {}
        self._full: dict[str, str] = {}
        self._over = trio.Event()

    async def start(self, nursery: trio.Nursery) -> None:
        """Start all servers and ask them for their tools. One that cannot be used is `failed`, and nothing is raised."""
        async with trio.open_nursery() as starting:
            for name in self._entries:
                starting.start_soon(nursery.start, self._serve, name)
        self._full = {short: name for name, short in api_names(self.tools).items()}

    def stop(self) -> None:
        """Let all servers go."""
        self._over.set()

    def describe(self) -> list[dict[str, Any]]:
        """Return the servers for the init frame."""
        states = {name: "connected" if name in self._clients else "failed" for name in self._entries}
        return [{"name": name, "status": state, "source": "dynamic"} for name, state in states.items()]

    def definitions(self) -> list[dict[str, Any]]:
        """Return the tools as the Anthropic API takes them."""
        return [
            {"name": short, "description": tool.description, "input_schema": dict(tool.input_schema)}
            for short, full in self._full.items()
            for tool in (self.tools[full],)
        ]

    def full(self, short: str) -> str:
        """Return the full name of a tool that an API names; what is none of them stays as it is."""
        return self._full.get(short, short)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], tool_id: str) -> Result:
        """Run a tool. What goes wrong is the result: the model reads it."""
        try:
            said = await self._clients[tool.server].call_tool(
                tool.name, dict(arguments), meta={"claudecode/toolUseId": tool_id}
            )
        except Exception as error:  # a server may break in any way; the model is told, and goes on
            return Result(f"{type(error).__name__}: {error}", is_error=True)
        return _result(said)

    async def _serve(self, name: str, task_status: trio.TaskStatus[None]) -> None:
        """One server's life. It has started once it has named its tools, or failed."""
        mcp = load("mcp")
        started = False
        try:
            with trio.CancelScope(deadline=trio.current_time() + START_S) as scope:
                async with AsyncExitStack() as stack:
                    me = mcp.Implementation(name="clisup-worker", version=VERSION)
                    client = mcp.Client(self._place(mcp, self._entries[name]), client_info=me)
                    found = await _tools_of(await stack.enter_async_context(client), name)
                    scope.deadline = math.inf
                    self.tools |= {tool.full_name: tool for tool in found}
                    self._clients[name] = client
                    started = True
                    task_status.started()
                    await self._over.wait()
        except Exception as error:  # as above; a group of them where a task of the package failed
            self._clients.pop(name, None)
            os.write(2, f"MCP server {name!r} failed: {error!r}\n".encode("utf-8", "replace"))
        if not started:
            task_status.started()

    def _place(self, mcp: Any, entry: Mapping[str, Any]) -> Any:
        kind = entry.get("type", "stdio")
        if kind == "stdio":
            inherited = {name: value for name, value in os.environ.items() if name not in self._hidden}
            own = {str(name): str(value) for name, value in (entry.get("env") or {}).items()}
            return mcp.StdioServerParameters(
                command=str(entry.get("command", "")),
                args=[str(arg) for arg in entry.get("args", ())],
                env=inherited | own,
            )
        if kind == "http":
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            headers = {str(name): str(value) for name, value in (entry.get("headers") or {}).items()}
            return streamable_http_client(str(entry["url"]), http_client=httpx2.AsyncClient(headers=headers))
        raise BadServers(f"a server of type {kind!r} cannot be used: take stdio or http")


async def _tools_of(client: Any, server: str) -> list[Tool]:
    found: list[Tool] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            hints = tool.annotations
            found.append(
                Tool(server, tool.name, tool.description or "", tool.input_schema, bool(hints and hints.read_only_hint))
            )
        cursor = page.next_cursor
        if cursor is None:
            return found


def _result(said: Any) -> Result:
    """What a server answered: a text where it failed, else blocks, as claude has them."""
    blocks = [_block(part) for part in said.content]
    left = RESULT_MAX
    for block in blocks:
        if block["type"] == "text":
            text = block["text"]
            if len(text) > left:
                block["text"] = f"{text[:left]}\n... [{len(text) - left} characters truncated] ..."
            left = max(0, left - len(text))
    if said.is_error:
        return Result("\n".join(block["text"] for block in blocks if block["type"] == "text"), is_error=True)
    return Result(blocks)


def _block(part: Any) -> dict[str, Any]:
    if part.type == "image":
        return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}
    if part.type == "text":
        return {"type": "text", "text": part.text}
    return {"type": "text", "text": part.model_dump_json(by_alias=True, exclude_none=True)}
