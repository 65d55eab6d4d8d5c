"""Server of the Model Context Protocol over the tools of `clisup.doors.mcp.agents`, by the official package.

The sessions that may start further agents call the same tools over the daemon's own bridge (`tools` of `session/new`). The
bounds hold in this process, which no model's shell can reach.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import trio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from clisup import __version__
from clisup.client.aio import AsyncClient
from clisup.client.aio_session import AsyncSession
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools
from clisup.doors.log import DoorLog
from clisup.doors.mcp.agents import CALL, AgentTools, ToolCaller
from clisup.doors.mcp.bounds import CLIENT_LABEL, MAX_WAIT_S, AgentBounds, depth_of
from clisup.doors.mcp.transcript import MAX_EVENTS, TRANSCRIPT_TYPES, SessionTranscript
from clisup.errors import ClisupError
from clisup.host.log_file import traceback_of

__all__ = ["INSTRUCTIONS", "McpDoor"]

INSTRUCTIONS = """\
Start other coding agents (claude, codex and others) on this machine, follow them, and give them more work.
Start, then follow: start returns early with the state running, and follow waits for the rest. Each agent goes on by itself,
also when this conversation ends. An agent sees only its prompt and its directory. Use worktree for agents that change the
same repository in parallel."""

_READING = ("backends", "follow", "sessions", "approvals")
_TOOLS = ("backends", "start", "send", "follow", "interrupt", "sessions", "approvals", "close")
_TOOL_USE = "claudecode/toolUseId"  # claude names its call in `_meta` (2.1.330)

Tool = Callable[..., Awaitable[Any]]


class McpDoor:
    """Server for one MCP client at stdin and stdout. Without a daemon, each tool tells the `problem`."""

    def __init__(
        self, client: AsyncClient | None, bounds: AgentBounds, nursery: trio.Nursery, log: DoorLog,
        problem: ClisupError | None = None,
    ) -> None:  # fmt: skip
        self._client, self._bounds, self._nursery, self._log = client, bounds, nursery, log
        self._tools = AgentTools(client, bounds, self._delegate, problem)
        self._server = MCPServer(
            "clisup", version=__version__, instructions=INSTRUCTIONS, log_level="CRITICAL", subscriptions=False,
            middleware=[self._called],
        )  # fmt: skip
        for name in (*_TOOLS, *(["answer"] if bounds.may_approve else [])):
            hints = ToolAnnotations(read_only_hint=name in _READING, open_world_hint=name in ("start", "send"))
            self._server.add_tool(self._telling(name, getattr(self._tools, name)), name=name, annotations=hints)
        self._server.resource(
            "clisup://session/{session_id}", name="session", mime_type="text/markdown",
            description="The conversation of a session.",
        )(self._transcript)  # fmt: skip

    async def run(self) -> None:
        """Serve until the client closes its end."""
        if self._client is not None and self._bounds.depth > 1:
            self._nursery.start_soon(self._take_up)
        await self._server.run_stdio_async()

    async def _called(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Note who calls, for the tools."""
        info = ctx.session.client_params
        key = (ctx.meta or {}).get(_TOOL_USE)
        CALL.set(
            ToolCaller(
                client=info.client_info.name if info else "agent",
                key=key if isinstance(key, str) else None,
                report=ctx.session.report_progress,
            )
        )
        return await call_next(ctx)

    def _telling(self, name: str, tool: Tool) -> Tool:
        """Return the tool with errors that a model can read, and a line in the log for each call."""

        @wraps(tool)
        async def run(*args: Any, **kwargs: Any) -> Any:
            try:
                result = await tool(*args, **kwargs)
            except ClisupError as error:
                self._log.write(f"{name}: {error.kind}")
                raise ToolError(_words(error)) from error
            except Exception as error:
                self._log.write(f"fault in {name}: {traceback_of(error)}")
                raise ToolError("the tool failed: internal error of clisup mcp; see --log-file") from error
            self._log.write(name)
            return result

        return run

    async def _transcript(self, session_id: str) -> str:
        """Return the conversation of a session."""
        try:
            info = await self._tools.readable(session_id)
            transcript, session = SessionTranscript(), self._tools.client.attach(session_id)
            async for envelope in session.history(max(0, info.next_seq - 1 - MAX_EVENTS), types=TRANSCRIPT_TYPES):
                transcript.take(envelope)
        except ClisupError as error:
            raise ResourceError(_words(error)) from error
        return transcript.text()

    # -- agents that start agents

    async def _delegate(self, backend: str, cwd: str, **options: Any) -> AsyncSession:
        """Open a session that has these tools, and serve them."""
        specs = [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.input_schema,
             "timeout_s": MAX_WAIT_S + 60}
            for tool in await self._server.list_tools() if tool.name in _TOOLS
        ]  # fmt: skip
        session = await self._tools.client.open(backend, cwd, tools=specs, **options)
        self._nursery.start_soon(self._serve, session.id)
        return session

    async def _take_up(self) -> None:
        """Serve the agents that an earlier process of this server has left."""
        try:
            for row in await self._tools.client.sessions():
                if CLIENT_LABEL in row.labels and depth_of(row.labels) < self._bounds.depth:
                    info = await self._tools.client.attach(row.session_id).info()
                    if info.tools is not None and not info.tools.get("served"):
                        self._nursery.start_soon(self._serve, row.session_id)
        except ClisupError as error:
            self._log.write(f"cannot take up agents: {error.kind}")

    async def _serve(self, session_id: str) -> None:
        try:
            await serve_tools(self._tools.client, session_id, self._run_for)
        except ClisupError as error:
            self._log.write(f"cannot serve {session_id}: {error.kind}")

    async def _run_for(self, call: ToolCall) -> ToolReply:
        """Run a tool for an agent. The id of its call is the key, so that a repeated call runs once."""
        CALL.set(ToolCaller(key=call.call_id, parent=call.session_id))
        if call.name not in _TOOLS:
            return ToolReply(f"there is no tool {call.name[:64]!r}", is_error=True)
        try:
            result = await self._server.call_tool(call.name, call.input)
        except ToolError as error:
            return ToolReply(str(error), is_error=True)
        assert isinstance(result, CallToolResult)
        return ToolReply("\n".join(part.text for part in result.content if isinstance(part, TextContent)))


def _words(error: ClisupError) -> str:
    """Return an error as JSON, as the daemon tells it: the kind, what is wrong, and what to do."""
    return json.dumps({"kind": error.kind, "message": error.message, "hint": error.hint}, ensure_ascii=False)
