"""An editor over the official Python client of the protocol, which validates every message with the schema's models."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import acp
from acp import schema
from acp.client.connection import ClientSideConnection
from harness import Harness

import clisup

BOUND_S = 120.0
_LIMIT = 64 * 1024 * 1024

Permission = Callable[[Any, list[Any]], Awaitable[str | None]]


async def _allow(_call: Any, _options: list[Any]) -> str | None:
    return "allow"


class Editor:
    """Client that records updates. `permission` and `fill` answer dialogs; each returns None to cancel."""

    def __init__(
        self, permission: Permission = _allow, fill: Callable[[str, Any], Awaitable[Any]] | None = None
    ) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.seqs: list[int] = []
        self.asked: list[tuple[Any, list[Any]]] = []
        self.raw: list[dict[str, Any]] = []
        self.permission, self.fill = permission, fill
        self.forms: list[tuple[str, Any]] = []
        self.changed = asyncio.Event()

    # -- what the agent calls

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append((session_id, update))
        seq = (kwargs.get("clisup") or {}).get("seq")
        if seq is not None:
            self.seqs.append(seq)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.changed.set()
        chosen = await self.permission(tool_call, options)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any:
        self.forms.append((message, mode))
        assert self.fill is not None
        content = await self.fill(message, mode)
        if content is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content=content)

    def on_connect(self, conn: Any) -> None:
        self.connection = conn

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise acp.RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None

    # -- what a test asks

    def observe(self, event: Any) -> None:
        """Keep every message of the wire."""
        self.raw.append(event.message)

    def of(self, kind: str, session_id: str | None = None) -> list[Any]:
        """Return the updates of a kind."""
        return [u for s, u in self.updates if u.session_update == kind and session_id in (None, s)]

    def text(self, kind: str = "agent_message_chunk", session_id: str | None = None) -> str:
        """Return the joined text of the chunks."""
        return "".join(getattr(u.content, "text", "") for u in self.of(kind, session_id))

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for a condition on what came, under a generous bound."""
        async with asyncio.timeout(BOUND_S):
            while not (found := condition()):
                self.changed.clear()
                try:
                    await asyncio.wait_for(self.changed.wait(), 0.2)
                except TimeoutError:
                    pass
            return found


class Door:
    """Connection of an editor to its door, and the process of the door."""

    def __init__(self, connection: ClientSideConnection, process: asyncio.subprocess.Process, editor: Editor) -> None:
        self.agent, self.process, self.editor = connection, process, editor
        self.told: schema.InitializeResponse

    async def initialize(self, **capabilities: Any) -> schema.InitializeResponse:
        self.told = await self.agent.initialize(
            protocol_version=1,
            client_capabilities=schema.ClientCapabilities(**capabilities),
            client_info=schema.Implementation(name="test-editor", version="1"),
        )
        return self.told

    async def new(self, cwd: Path | str) -> str:
        opened = await self.agent.new_session(cwd=str(cwd), mcp_servers=[])
        return opened.session_id

    async def prompt(self, session_id: str, text: str, **meta: Any) -> schema.PromptResponse:
        return await self.agent.prompt(session_id=session_id, prompt=[acp.text_block(text)], **meta)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request that the client library has no method for."""
        return await self.agent._conn.send_request(method, params)


def environment(daemon: Harness, **more: str) -> dict[str, str]:
    """Return the environment of a door at this daemon."""
    return {
        **daemon.env,
        "CLISUP_SOCKET": daemon.socket,
        "CLISUP_STATE_DIR": str(daemon.state),
        "PYTHONPATH": str(Path(clisup.__file__).parents[1]),
        **more,
    }


class Place(Protocol):
    """Daemon of a test, with a directory to work in."""

    @property
    def cwd(self) -> Path: ...


@asynccontextmanager
async def door(
    daemon: Place,
    editor: Editor,
    *args: str,
    initialize: bool = True,
    env: dict[str, str] | None = None,
    **capabilities: Any,
) -> AsyncIterator[Door]:
    """Start `clisup acp` and connect the editor to it."""
    words = args or ("-b", "demo")
    if env is None:
        assert isinstance(daemon, Harness)
        env = environment(daemon)
    async with asyncio.timeout(BOUND_S * 2):
        async with acp.spawn_agent_process(
            editor,  # type: ignore[arg-type]
            sys.executable, "-m", "clisup", "acp", *words,
            env=env, cwd=str(daemon.cwd),
            transport_kwargs={"limit": _LIMIT, "stderr": None}, observers=[editor.observe], use_unstable_protocol=True,
        ) as (connection, process):  # fmt: skip
            opened = Door(connection, process, editor)
            if initialize:
                await opened.initialize(**capabilities)
            yield opened
