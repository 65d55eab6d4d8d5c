"""MCP servers of a session, by the official mcp package. They start with the worker, and their calls run in parallel."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import trio

from clisup.worker import VERSION, JsonObject
from clisup.worker.apis.api import load
from clisup.worker.apis.names import api_names, full_name

START_S = 30.0
"""Timeout in seconds for a server to start and list its tools, as in claude (MCP_TIMEOUT)."""

RESULT_MAX = 400_000
"""Characters of a result's text that reach the model. A note replaces the rest."""


class BadMcpConfig(Exception):
    """Invalid configuration of MCP servers. The text says why."""


@dataclass(frozen=True)
class McpTool:
    """McpTool of a server."""

    server: str
    name: str
    description: str
    input_schema: Mapping[str, Any]
    reads_only: bool

    @property
    def full_name(self) -> str:
        """Return the tool's name for events and rules."""
        return full_name(self.server, self.name)


@dataclass(frozen=True)
class ToolOutcome:
    """Result of a tool: a text, or blocks of the Anthropic API."""

    content: Any
    is_error: bool = False


def read_config(path: str | None) -> dict[str, Mapping[str, Any]]:
    """Return the servers of a file in claude's format, by name. Raises `BadMcpConfig`."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            return {str(name): dict(entry) for name, entry in json.loads(file.read())["mcpServers"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMcpConfig(f"Error: Invalid MCP configuration: {error}") from None


class McpServers:
    """Running servers, and their tools by full name. No server gets the variables in `hidden`: the API's key."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]], hidden: frozenset[str]) -> None:
        self._entries, self._hidden = entries, hidden
        self._clients: JsonObject = {}
        self.tools: dict[str, McpTool] = {}
        self._short: dict[str, str] = {}
        self._full: dict[str, str] = {}
        self._over = trio.Event()

    async def start(self, nursery: trio.Nursery) -> None:
        """Start all servers and list their tools. A server that does not start is `failed`; the others go on."""
        async with trio.open_nursery() as starting:
            for name in self._entries:
                starting.start_soon(nursery.start, self._serve, name)
        self._short = api_names(self.tools)
        self._full = {short: name for name, short in self._short.items()}

    def stop(self) -> None:
        """Stop all servers."""
        self._over.set()

    def describe(self) -> list[JsonObject]:
        """Return the servers for the init frame."""
        states = {name: "connected" if name in self._clients else "failed" for name in self._entries}
        return [{"name": name, "status": state, "source": "dynamic"} for name, state in states.items()]

    def definitions(self) -> list[JsonObject]:
        """Return the tools in the form of the Anthropic API."""
        return [
            {"name": short, "description": tool.description, "input_schema": dict(tool.input_schema)}
            for short, full in self._full.items()
            for tool in (self.tools[full],)
        ]

    def full_name(self, api_name: str) -> str:
        """Return the full name of a tool that the API names. Other names stay as they are."""
        return self._full.get(api_name, api_name)

    def api_name(self, name: str) -> str:
        """Return the API's name of a tool. Other names stay as they are."""
        return self._short.get(name, name)

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], tool_id: str) -> ToolOutcome:
        """Run a tool. A failure is a result, too: the model reads it."""
        client = self._clients.get(tool.server)
        if client is None:
            return ToolOutcome(f"The MCP server {tool.server} has ended.", is_error=True)
        try:
            answer = await client.call_tool(tool.name, dict(arguments), meta={"claudecode/toolUseId": tool_id})
        except Exception as error:  # a server may fail in any way
            return ToolOutcome(f"{type(error).__name__}: {error}", is_error=True)
        return _outcome(answer)

    async def _serve(self, name: str, task_status: trio.TaskStatus[None]) -> None:
        """Run one server. Its start ends when the server has listed its tools, or has failed."""
        mcp = load("mcp")
        started = False
        try:
            with trio.CancelScope(deadline=trio.current_time() + START_S) as scope:
                async with AsyncExitStack() as stack:
                    me = mcp.Implementation(name="clisup-worker", version=VERSION)
                    client = mcp.Client(self._transport(mcp, self._entries[name]), client_info=me)
                    found = await _tools_of(await stack.enter_async_context(client), name)
                    scope.deadline = math.inf
                    self.tools |= {tool.full_name: tool for tool in found}
                    self._clients[name] = client
                    started = True
                    task_status.started()
                    await self._over.wait()
        except Exception as error:  # as above, or a group of errors
            _warn(name, repr(error))
        self._clients.pop(name, None)
        if not started:
            if scope.cancelled_caught:
                _warn(name, f"no answer within {START_S:.0f} s")
            task_status.started()

    def _transport(self, mcp: Any, entry: Mapping[str, Any]) -> Any:
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
            patient = httpx2.Timeout(START_S, read=None)  # a tool may run for hours
            # The server gets headers with keys: no redirect takes them elsewhere.
            client = httpx2.AsyncClient(headers=headers, timeout=patient, follow_redirects=False)
            return streamable_http_client(str(entry["url"]), http_client=client)
        raise BadMcpConfig(f"a server of type {kind!r} is not supported: use stdio or http")


def _warn(server: str, why: str) -> None:
    os.write(2, f"MCP server {server!r} failed: {why}\n".encode("utf-8", "replace"))


async def _tools_of(client: Any, server: str) -> list[McpTool]:
    found: list[McpTool] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            hints = tool.annotations
            found.append(
                McpTool(
                    server, tool.name, tool.description or "", tool.input_schema, bool(hints and hints.read_only_hint)
                )
            )
        cursor = page.next_cursor
        if cursor is None:
            return found


def _outcome(answer: Any) -> ToolOutcome:
    """Return a server's answer as claude has it: a text for a failure, else blocks."""
    blocks = [_block(part) for part in answer.content]
    left = RESULT_MAX
    for block in blocks:
        if block["type"] == "text":
            text = block["text"]
            if len(text) > left:
                block["text"] = f"{text[:left]}\n... [{len(text) - left} characters truncated] ..."
            left = max(0, left - len(text))
    if answer.is_error:
        return ToolOutcome("\n".join(block["text"] for block in blocks if block["type"] == "text"), is_error=True)
    if not blocks and answer.structured_content is not None:
        return ToolOutcome([{"type": "text", "text": json.dumps(answer.structured_content, ensure_ascii=False)}])
    return ToolOutcome(blocks)


def _block(part: Any) -> JsonObject:
    if part.type == "image":
        return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}
    if part.type == "text":
        return {"type": "text", "text": part.text}
    return {"type": "text", "text": part.model_dump_json(by_alias=True, exclude_none=True)}
