"""An agent on the official Python SDK of the Agent Client Protocol, for tests of the whole way: it plays the prompt's lines.

    say TEXT | think TEXT | tool ID NAME JSON | late ID NAME JSON | child SECONDS | ask ID | ask-forever ID | elicit SCHEMA | visit URL
    fs PATH | extension | plan | notice | usage JSON | cost USD | remember | hang | error CODE MESSAGE [JSON] | stop REASON

Its sessions are files under $HOME. Flags say what it offers: --no-load, --resume, --replay-late, --options, --no-modes,
--version N, --login, --mcp-http, --mute.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import acp
from acp import schema

MODES = ("ask", "allow", "plan-only")
MODELS = ("small", "large")
FLAGS = frozenset(sys.argv[1:])


class Agent(acp.Agent):
    client: Any = None

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.model, self.mode, self.usage, self.mcp = "small", "ask", None, []
        self.logged_in = "--login" not in FLAGS

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, **_: Any
    ) -> schema.InitializeResponse:
        can_elicit = client_capabilities and client_capabilities.elicitation
        self.elicits = bool(can_elicit and can_elicit.form is not None and can_elicit.url is not None)
        if "--mute" in FLAGS:
            await asyncio.Event().wait()
        sessions = schema.SessionCapabilities(
            resume=schema.SessionResumeCapabilities() if "--resume" in FLAGS else None
        )
        can = schema.AgentCapabilities(
            load_session="--no-load" not in FLAGS,
            session_capabilities=sessions,
            mcp_capabilities=schema.McpCapabilities(http="--mcp-http" in FLAGS),
        )
        number = int(sys.argv[sys.argv.index("--version") + 1]) if "--version" in FLAGS else protocol_version
        info = schema.Implementation(name="tests-agent", version="1.2.3")
        methods = [
            schema.AuthMethodAgent(id="key", name="API key", description="takes the key in $HOME"),
            schema.AuthMethodAgent(id="browser", name="Log in with a browser"),
        ]
        return schema.InitializeResponse(
            protocol_version=number, agent_capabilities=can, agent_info=info, auth_methods=methods
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        if method_id != "key":
            raise acp.RequestError(-32603, "There is no browser")
        self.logged_in = True
        return schema.AuthenticateResponse()

    # Sessions

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        if not self.logged_in:
            raise acp.RequestError.auth_required()
        self.mcp = mcp_servers or []
        session = str(uuid.uuid4())
        self._file(session).parent.mkdir(exist_ok=True)
        self._file(session).write_text("[]")
        return schema.NewSessionResponse(session_id=session, **self._offers())

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        self._known(session_id)
        if "--replay-late" in FLAGS:
            self.replay = asyncio.create_task(self._replay(session_id))
        else:
            await self._replay(session_id)
        return schema.LoadSessionResponse(**self._offers())

    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        self._known(session_id)
        return schema.ResumeSessionResponse(**self._offers())

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        if mode_id == "plan-only":
            raise acp.RequestError(-32602, "There is nothing to plan")
        self.mode = mode_id
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        setattr(self, {"brain": "model", "how": "mode"}[config_id], value)
        return schema.SetSessionConfigOptionResponse(config_options=self._options())

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()

    def _offers(self) -> dict[str, Any]:
        if "--options" in FLAGS:
            return {"config_options": self._options()}
        if "--no-modes" in FLAGS:
            return {}
        modes = [schema.SessionMode(id=mode, name=mode.title()) for mode in MODES]
        return {"modes": schema.SessionModeState(available_modes=modes, current_mode_id=self.mode)}

    def _options(self) -> list[Any]:
        def select(option: str, category: str, current: str, values: tuple[str, ...]) -> Any:
            items = [schema.SessionConfigSelectOption(value=value, name=value.title()) for value in values]
            return schema.SessionConfigOptionSelect(
                id=option, name=option, category=category, current_value=current, options=items, type="select"
            )

        return [select("brain", "model", self.model, MODELS), select("how", "mode", self.mode, MODES)]

    def _file(self, session: str) -> Path:
        return Path(os.environ["HOME"]) / "acp-agent" / f"{session}.json"

    def _known(self, session: str) -> None:
        if not self._file(session).exists():
            raise acp.RequestError.resource_not_found(f"session:{session}")

    async def _replay(self, session: str) -> None:
        for words in json.loads(self._file(session).read_text()):
            await self._update(session, acp.update_user_message_text(words))
            await self._update(session, acp.update_agent_message_text("an old answer"))
            tool = acp.start_tool_call("old", "old tool", status="completed", raw_input={"old": True})
            await self._update(session, tool)

    # The prompt

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        self.cancelled.clear()
        words = prompt[0].text
        file = self._file(session_id)
        file.write_text(json.dumps([*json.loads(file.read_text()), words]))
        reason = "end_turn"
        for line in words.splitlines():
            verb, _, rest = line.partition(" ")
            if verb == "stop":
                reason = rest
            elif await self._play(session_id, verb, rest):
                reason = "cancelled"
                break
        return schema.PromptResponse(stop_reason=reason, usage=self.usage)

    async def _play(self, session: str, verb: str, rest: str) -> bool:
        """One line; True where the turn was cancelled in it."""
        if verb == "error":
            code, message, data = (*rest.split(" ", 2), "")[:3]
            raise acp.RequestError(int(code), message, json.loads(data) if data else None)
        if verb == "usage":
            self.usage = schema.Usage(**json.loads(rest))
        elif verb == "hang":
            await self.cancelled.wait()
        elif verb in ("ask", "ask-forever"):
            return await self._ask(session, rest, verb)
        elif verb in ("elicit", "visit"):
            await self._elicit(session, verb, rest)
        elif verb in ("fs", "extension"):
            await self._beg(session, verb, rest)
        elif verb == "child":
            await self._child(session, rest)
        else:
            for update in self._updates(session, verb, rest):
                await self._update(session, update)
        return self.cancelled.is_set()

    def _updates(self, session: str, verb: str, rest: str) -> list[Any]:
        if verb in ("tool", "late"):
            tool, name, raw = rest.split(" ", 2)
            known, unknown = {"raw_input": json.loads(raw)}, {}
            start = acp.start_tool_call(
                tool, name, kind="read", status="pending", **(known if verb == "tool" else unknown)
            )
            running = acp.update_tool_call(tool, status="in_progress", **known)
            content = [acp.tool_content(acp.text_block("read")), acp.tool_diff_content("/a", "new", "old")]
            return [start, running, running, acp.update_tool_call(tool, status="completed", content=content)]
        return {
            "say": lambda: [acp.update_agent_message_text(rest)],
            "think": lambda: [acp.update_agent_thought_text(rest)],
            "plan": lambda: [acp.update_plan([acp.plan_entry("look", priority="high", status="completed")])],
            "cost": lambda: [
                schema.UsageUpdate(
                    session_update="usage_update",
                    used=7,
                    size=100,
                    cost=schema.Cost(amount=float(rest), currency="USD"),
                )
            ],
            "remember": lambda: [acp.update_agent_message_text(json.loads(self._file(session).read_text())[0])],
            "settings": lambda: [acp.update_agent_message_text(f"{self.model} {self.mode} {len(self.mcp)}")],
        }[verb]()

    async def _ask(self, session: str, tool: str, verb: str) -> bool:
        options = [
            schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        call = schema.ToolCallUpdate(tool_call_id=tool, title="rm -rf", kind="delete", raw_input={"path": "/x"})
        chosen = await self.client.request_permission(session_id=session, tool_call=call, options=options)
        text = getattr(chosen.outcome, "option_id", "cancelled")
        await self._update(session, acp.update_agent_message_text(f"chosen: {text}"))
        return False

    async def _elicit(self, session: str, verb: str, rest: str) -> None:
        """Ask the client's user, and tell the answer."""
        if not self.elicits:
            told = "not offered"
        else:
            mode: Any = (
                schema.ElicitationFormSessionMode(session_id=session, requested_schema=json.loads(rest))
                if verb == "elicit"
                else schema.ElicitationUrlSessionMode(session_id=session, url=rest, elicitation_id="e1")
            )
            answer = await self.client.create_elicitation("Please.", mode)
            told = answer.model_dump_json(exclude_none=True)
        await self._update(session, acp.update_agent_message_text(told))

    async def _beg(self, session: str, verb: str, rest: str) -> None:
        """Ask the client for what it does not offer, and tell its refusal."""
        try:
            if verb == "fs":
                await self.client.read_text_file(session_id=session, path=rest)
            else:
                await self.client.ext_method("tests/unheard_of", {})
            told = "granted"
        except acp.RequestError as error:
            told = f"refused with {error.code}"
        await self._update(session, acp.update_agent_message_text(told))

    async def _child(self, session: str, seconds: str) -> None:
        call = {"raw_input": {"command": f"sleep {seconds}"}, "kind": "execute"}
        await self._update(session, acp.start_tool_call("c", "sleep", status="in_progress", **call))
        child = await asyncio.create_subprocess_exec("sleep", seconds, start_new_session=True)
        waits = [asyncio.create_task(child.wait()), asyncio.create_task(self.cancelled.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if child.returncode is None:
            child.kill()

    async def _update(self, session: str, update: Any) -> None:
        await self.client.session_update(session_id=session, update=update)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent(), use_unstable_protocol=True))
