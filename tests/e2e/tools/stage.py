"""The same script of tool calls for each CLI, behind a daemon, with a client that runs the tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from clisup.client.aio import AsyncClient, open_client
from clisup.llm.messages import ImageBlock, TextBlock
from clisup.llm.serving import serving, to_wire
from clisup.llm.tools import ToolOutput
from tests.e2e import scenarios as claude
from tests.e2e.api.lab import API_KINDS, ApiLab
from tests.e2e.codex import fake_api as codex
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import Scenario as CodexScenario
from tests.e2e.gemini import scenarios as gemini
from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.lab import ClaudeLab, Lab, running
from tests.e2e.qwen import scenarios as qwen
from tests.e2e.qwen.lab import QwenLab

CLIS = ("claude", "claude-live", "codex", "codex-exec", "demo", "demo-live", "qwen", "qwen-live")
"""Every way to run a CLI that takes our bridge."""

KINDS = (*CLIS, *API_KINDS)
"""Those, and the API backends. All give the same events for the same calls, to the letter."""

REAL = (*CLIS[:4], *API_KINDS)
"""qwen tells images as texts of its own."""

LIMIT_S = 120.0
Call = tuple[str, dict[str, Any]]
Scripted = Sequence[Call]
"""The calls of one message of the model's. A name that begins with `!` is one of the CLI's own tools: a shell command."""

Arguments = dict[str, Any]


class DemoLab(Lab):
    """The demo CLI, which needs no fake."""

    backend = "demo"

    def __init__(self, config: str = "") -> None:
        super().__init__()
        (self.root / "config.toml").write_text(config)


@dataclass(frozen=True)
class Given:
    """A tool for a session, by a function of its arguments; what that returns is a text or a whole output."""

    name: str
    does: Callable[[Arguments], Awaitable[str | ToolOutput]]
    timeout_s: float | None = None
    description: str = "A tool of the tests."
    input_schema: Arguments = field(default_factory=lambda: {"type": "object", "properties": {}})

    async def run(self, arguments: Arguments) -> ToolOutput:
        said = await self.does(arguments)
        return said if isinstance(said, ToolOutput) else ToolOutput(said)


async def add(arguments: Arguments) -> str:
    return str(arguments["a"] + arguments["b"])


async def fail(arguments: Arguments) -> ToolOutput:
    return ToolOutput("it went wrong", is_error=True)


async def burst(arguments: Arguments) -> str:
    raise LookupError("no such key")


async def two_texts(arguments: Arguments) -> ToolOutput:
    return ToolOutput([TextBlock(text="one"), TextBlock(text="two")])


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def picture(arguments: Arguments) -> ToolOutput:
    return ToolOutput([TextBlock(text="see"), ImageBlock(media_type="image/png", data=PNG)])


ADD, FAIL, BURST = Given("add", add), Given("fail", fail), Given("burst", burst)
TWO_TEXTS, PICTURE = Given("two_texts", two_texts), Given("picture", picture)


class Stage:
    """One lab whose model makes the scripted calls, message by message, and then says `Done.`"""

    def __init__(self, kind: str, script: Sequence[Scripted], config: str = "") -> None:
        self.kind = kind
        self.options: Arguments = {"mode": "live"} if kind.endswith("-live") else {}
        self.prompt = "Use your tools."
        self.lab: Lab = _LABS[kind.removesuffix("-live")](self, script, config)

    def playing(self) -> AbstractContextManager[Lab]:
        return running(self.lab)

    async def open(self, client: AsyncClient, tools: Sequence[Given], **params: Any) -> str:
        """A session with these tools."""
        about = {"backend": self.lab.backend, "cwd": str(self.lab.cwd), **self.options, **params}
        return str((await client.call("session/new", tools=to_wire(tools), **about))["session_id"])

    def turn(self, *tools: Given, **params: Any) -> list[dict[str, Any]]:
        """A session with these tools, and one prompt to its end: the session's events."""
        return trio.run(partial(self._turn, tools, params))

    async def _turn(self, tools: Sequence[Given], params: Arguments) -> list[dict[str, Any]]:
        with trio.fail_after(LIMIT_S):
            async with open_client(self.lab.socket) as client:
                session = await self.open(client, tools, **params)
                async with serving(client, session, tools):
                    await client.call("session/prompt", session_id=session, prompt=self.prompt, wait=True)
        return self.lab.events(session)


def _claude(stage: Stage, script: Sequence[Scripted], config: str) -> Lab:
    def block(message: int, place: int, call: Call) -> Any:
        name, arguments = call
        if name == "!":
            return claude.bash(f"{message}{place}", arguments["command"])
        return claude.tool(f"mcp__clisup__{name}", f"{message}{place}", arguments)

    said = [
        claude.use(*[block(number, place, call) for place, call in enumerate(calls)])
        for number, calls in enumerate(script)
    ]
    return ClaudeLab(claude.Scenario("tools", claude.in_turn(*said, claude.say("Done."))), config=config)


def _codex(kind: str, stage: Stage, script: Sequence[Scripted], config: str) -> Lab:
    def item(call: Call) -> codex.Item:
        name, arguments = call
        if name == "!":
            return codex.call("exec_command", cmd=arguments["command"])
        return codex.call(name, namespace="mcp__clisup", **arguments)

    def message(calls: Scripted) -> claude.Respond:
        return lambda body, n: codex.said(n, *[item(call) for call in calls])

    def last(body: claude.Body, n: int) -> claude.Reply:
        return codex.said(n, codex.message("Done."))

    respond = claude.in_turn(*[message(calls) for calls in script], last)
    return CodexLab(CodexScenario("tools", respond, kinds=(kind,)), kind=kind, config=config)


def _qwen(stage: Stage, script: Sequence[Scripted], config: str) -> Lab:
    def deltas(message: int, place: int, call: Call) -> list[claude.Body]:
        name, arguments = call
        if name == "!":
            return qwen.shell(f"{message}{place}", arguments["command"], place)
        return qwen.tool(f"mcp__clisup__{name}", f"{message}{place}", arguments, place)

    said = [
        qwen.use(*[delta for place, call in enumerate(calls) for delta in deltas(number, place, call)])
        for number, calls in enumerate(script)
    ]
    return QwenLab(claude.Scenario("tools", claude.in_turn(*said, qwen.say("Done."))), config=config)


def _gemini(stage: Stage, script: Sequence[Scripted], config: str) -> Lab:
    said = [gemini.calls(*[gemini.call(f"mcp_clisup_{name}", given) for name, given in calls]) for calls in script]
    return GeminiLab(gemini.Scenario("tools", gemini.in_turn(*said, gemini.says("Done."))), config=config)


def _api(kind: str, stage: Stage, script: Sequence[Scripted], config: str) -> Lab:
    """The same calls as each API writes them."""
    made = {"anthropic-api": _anthropic_message, "chat-api": _chat_message, "responses-api": _responses_message}[kind]
    last: dict[str, claude.Respond] = {
        "anthropic-api": claude.say("Done."),
        "chat-api": qwen.say("Done."),
        "responses-api": lambda body, n: codex.said(n, codex.message("Done.")),
    }
    said = [made(number, calls) for number, calls in enumerate(script)]
    return ApiLab(kind, claude.in_turn(*said, last[kind]), config=config)


def _anthropic_message(number: int, calls: Scripted) -> claude.Respond:
    return claude.use(
        *(claude.tool(f"mcp__clisup__{name}", f"{number}{at}", given) for at, (name, given) in enumerate(calls))
    )


def _chat_message(number: int, calls: Scripted) -> claude.Respond:
    deltas = [qwen.tool(f"mcp__clisup__{name}", f"{number}{at}", given, at) for at, (name, given) in enumerate(calls)]
    return qwen.use(*[delta for of_one in deltas for delta in of_one])


def _responses_message(number: int, calls: Scripted) -> claude.Respond:
    return lambda body, n: codex.said(n, *[codex.call(f"mcp__clisup__{name}", **given) for name, given in calls])


def _demo(stage: Stage, script: Sequence[Scripted], config: str) -> Lab:
    def line(call: Call) -> str:
        name, arguments = call
        return f"@bash {arguments['command']}" if name == "!" else f"@mcp {name} {json.dumps(arguments)}"

    lines = []
    for calls in script:
        made = [line(call) for call in calls]
        lines += ["@parallel", *made, "@end"] if len(made) > 1 else made
    stage.prompt = "\n".join([*lines, "Done."])
    return DemoLab(config)


_LABS: dict[str, Callable[[Stage, Sequence[Scripted], str], Lab]] = {
    "claude": _claude,
    "codex": partial(_codex, "codex"),
    "codex-exec": partial(_codex, "codex-exec"),
    "gemini": _gemini,
    "qwen": _qwen,
    "demo": _demo,
    **{kind: partial(_api, kind) for kind in API_KINDS},
}


def interactions(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the calls of our tools look like to a client, in the order of the calls' inputs: without ids and times."""
    results = {event["tool_use_id"]: event for event in events if event["type"] == "tool_result"}
    calls = [event for event in events if event["type"] == "tool_use" and event["name"].startswith("mcp__clisup__")]
    assert len({call["tool_use_id"] for call in calls}) == len(calls)
    told = [
        {
            "name": call["name"],
            "input": call["input"],
            "content": results[call["tool_use_id"]].get("content"),
            "blocks": results[call["tool_use_id"]].get("blocks"),
            "is_error": bool(results[call["tool_use_id"]].get("is_error")),
        }
        for call in calls
    ]
    return sorted(told, key=lambda one: json.dumps([one["name"], one["input"]], sort_keys=True))


def ended(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The turn's end."""
    (end,) = [event for event in events if event["type"] == "turn_completed"]
    return end
