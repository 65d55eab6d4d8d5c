"""Requests to `codex app-server`, and answers to its own requests, with the prompt and the settings of a session (0.169.0)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from clisup.backends.base import LaunchRequest
from clisup.backends.frames import Frame
from clisup.errors import UsageError
from clisup.model.prompts.content import Content, Image
from clisup.model.prompts.options import BRIDGE_SERVER

__all__ = [
    "ASK_PROVIDERS", "DEFAULT_PROVIDER", "GREETING", "PROVIDERS", "THREAD", "Said", "answer_to", "approvals_of",
    "bridge_launcher", "bridge_words", "config_of", "hidden", "interrupt", "interrupts", "open_thread", "said",
    "sandbox_of", "start_turn", "steer", "steers", "strict_schema", "switched_off", "toml_value", "trust_of",
    "turn_request",
]  # fmt: skip

INITIALIZE, THREAD, START_TURN, INTERRUPT, PROVIDERS = 1, 2, 3, 4, 5
DEFAULT_PROVIDER = "openai"
_STEER = "steer-"
_NOT_ALLOWED = "nobody is there to allow it"
_ANSWERS: dict[str, Frame] = {
    "item/tool/requestUserInput": {"answers": {}},
    "item/tool/call": {"contentItems": [], "success": False},
    "mcpServer/elicitation/request": {"action": "decline", "content": None, "_meta": None},
    "applyPatchApproval": {"decision": {"denied": {"rejection": _NOT_ALLOWED}}},
    "execCommandApproval": {"decision": {"denied": {"rejection": _NOT_ALLOWED}}},
}


def _line(**frame: Any) -> str:
    return json.dumps(frame, ensure_ascii=True) + "\n"


# codex gives raw response items only with experimentalApi.
GREETING = _line(
    id=INITIALIZE,
    method="initialize",
    params={
        "clientInfo": {"name": "clisup", "title": "clisup", "version": "1"},
        "capabilities": {"experimentalApi": True, "requestAttestation": False},
    },
) + _line(method="initialized")

# The answer names the configured provider, for a thread without one (history.py). config/read would tell keys, too.
ASK_PROVIDERS = _line(id=PROVIDERS, method="modelProvider/list", params={})


def open_thread(request: LaunchRequest, provider: str | None = None) -> str:
    """Return thread/start for a new session, thread/resume for a session with an id."""
    params: Frame = {
        "cwd": request.cwd,
        "approvalPolicy": approvals_of(request),
        "model": request.model,
        "modelProvider": provider,
        "sandbox": sandbox_of(request),
        "developerInstructions": request.system_prompt,
        "config": config_of(request) or None,
    }
    given = {name: value for name, value in params.items() if value is not None}
    if not request.resume:
        # codex makes no item of a call that it refuses. Raw items show such calls (calls.py); thread/resume has none.
        return _line(id=THREAD, method="thread/start", params={**given, "experimentalRawEvents": True})
    return _line(
        id=THREAD,
        method="thread/resume",
        params={"threadId": request.native_session_id, "excludeTurns": True, **given},
    )


def approvals_of(request: LaunchRequest) -> str:
    """Return the approval policy. With a sandbox, codex asks before it runs a command outside the sandbox."""
    return "never" if request.permission_mode == "danger-full-access" else "on-request"


def sandbox_of(request: LaunchRequest) -> str:
    """Return the sandbox, never none: codex gives an untrusted directory a writable sandbox by default (0.169.0)."""
    return request.permission_mode or "read-only"


def turn_request(request: LaunchRequest) -> int | str:
    """Return the id of turn/start. In a later turn of a live process it names the prompt, because answers have the id."""
    return f"{START_TURN}-{request.prompt_id}" if request.later else START_TURN


def start_turn(thread: str, request: LaunchRequest) -> str:
    """Return the prompt, or the request that compacts the context in a turn of its own.

    A later turn names the model, which may have changed since the start of the process.
    """
    if request.command_prompt:
        return _line(id=turn_request(request), method="thread/compact/start", params={"threadId": thread})
    params: Frame = {"threadId": thread, "input": _input_of(request)}
    if request.later and request.model is not None:
        params["model"] = request.model
    if request.output_schema is not None:
        params["outputSchema"] = strict_schema(request.output_schema)
    return _line(id=turn_request(request), method="turn/start", params=params)


def steer(thread: str, turn: str, request: LaunchRequest) -> str:
    """Return the prompt for the running turn. codex refuses the request if another turn runs, or none.

    The item of the prompt has the client's id, once the turn has taken the prompt.
    """
    params = {
        "threadId": thread,
        "expectedTurnId": turn,
        "clientUserMessageId": request.prompt_id,
        "input": _input_of(request),
    }
    return _line(id=f"{_STEER}{request.prompt_id}", method="turn/steer", params=params)


def steers(asked: str | int) -> bool:
    """Tell whether this is the id of a request of `steer`."""
    return isinstance(asked, str) and asked.startswith(_STEER)


def said(request: LaunchRequest) -> Said:
    """Return the prompt as text only, unless the caller lets codex look for skills.

    A live process has its settings from the start, so no skill can be switched off for a later prompt.
    """
    content = request.content or (request.prompt,)
    if request.expand:
        return Said(content, [], None)
    return hidden(content) if request.live else switched_off(content)


def _input_of(request: LaunchRequest) -> list[Frame]:
    """Return the prompt, with images as `data:` URLs: for a local file codex would also tell the model the path."""
    return [_input_item(part) for part in said(request).content]


def _input_item(part: str | Image) -> Frame:
    if isinstance(part, str):
        return {"type": "text", "text": part, "text_elements": []}
    return {"type": "image", "url": part.url}


def interrupt(thread: str, turn: str, commands: Iterable[str] = ()) -> str:
    """Return the request to end the turn, and one for each running command: by itself codex lets a command go on."""
    ends = (
        _line(id=f"{INTERRUPT}-{process}", method="thread/backgroundTerminals/terminate",
              params={"threadId": thread, "processId": process})
        for process in commands
    )  # fmt: skip
    return _line(id=INTERRUPT, method="turn/interrupt", params={"threadId": thread, "turnId": turn}) + "".join(ends)


def interrupts(asked: object) -> bool:
    """Tell whether the id is one of a request of `interrupt`."""
    return asked == INTERRUPT or str(asked).startswith(f"{INTERRUPT}-")


def answer_to(method: str, asked: str | int) -> str:
    """Return a refusal in the form of the request. An unknown request gets an error, so that codex does not wait forever."""
    result = _ANSWERS.get(method)
    if result is None:
        return _line(id=asked, error={"code": -32601, "message": f"clisup does not answer {method[:200]}"})
    return _line(id=asked, result=result)


def config_of(request: LaunchRequest) -> Frame:
    """Return the settings for the thread's request, which other users cannot read."""
    config: Frame = {}
    if trust := trust_of(request):
        config["projects"] = {path: {"trust_level": level} for path, level in trust.items()}
    if request.mcp_servers:
        config["mcp_servers"] = servers_of(request)
    if rules := said(request).rules:
        config["skills"] = {"config": rules}
    return config


def trust_of(request: LaunchRequest) -> dict[str, str]:
    """Return paths with `trusted` or `untrusted`, for the settings of the working directory.

    By default, thread/start with a writable sandbox marks the repository as trusted in the user's config.toml, and then runs its
    MCP servers and hooks (measured 0.169.0). The closed form also names every parent directory, because the user may have
    trusted the root of the repository.
    """
    if request.setting_sources is None:
        return {}
    if "project" in _sources(request.setting_sources):
        return {request.cwd: "trusted"}
    return dict.fromkeys(_upwards(request.cwd), "untrusted")


def _upwards(path: str) -> list[str]:
    """Return the directory and its parents."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) or "/" for count in range(len(parts), 0, -1)]


def _sources(value: str) -> frozenset[str]:
    sources = frozenset(name.strip() for name in value.split(",") if name.strip())
    if sources not in ({"user"}, {"user", "project"}):
        raise UsageError(
            f"cannot take the setting sources {value!r}, because codex always reads the user's and has no local ones",
            kind="unsupported",
            hint="take `user`, or `user,project`",
        )
    return sources


_NAMED = ("properties", "$defs", "definitions")  # names to schemas
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "not", "additionalProperties")


def strict_schema(schema: Mapping[str, Any]) -> Frame:
    """Return the schema with every property required, no others allowed, and without defaults.

    An object without named properties, or with a rule for others, stays unchanged: the API then accepts or refuses it.
    """
    made = {name: _part(name, value) for name, value in schema.items() if name != "default"}
    properties = made.get("properties")
    if isinstance(properties, dict) and made.get("additionalProperties", True) is True:
        made["additionalProperties"] = False
    if isinstance(properties, dict):
        made["required"] = list(properties)
    return made


def _part(name: str, value: Any) -> Any:
    if name in _NAMED and isinstance(value, dict):
        return {key: _sub(part) for key, part in value.items()}
    if name in _LISTED and isinstance(value, list):
        return [_sub(part) for part in value]
    return _sub(value) if name in _SINGLE else value


def _sub(schema: Any) -> Any:
    return strict_schema(schema) if isinstance(schema, dict) else schema


# MCP servers of the session, including the bridge to the tools of the session's client

STARTUP_S = 60
"""Seconds that codex waits for the bridge. codex begins its first request to the model without a server that is not
`required` and takes more than about a second."""

_LAUNCHER = "bridge.py"
_LAUNCHER_TEXT = """import os
os.environ.update({env!r})
os.execvp({command!r}, {argv!r})
"""


def servers_of(request: LaunchRequest) -> Frame:
    """Return the session's servers for `config.mcp_servers`. Raises `UsageError` for a server that codex does not support."""
    servers = {name: _server(name, server) for name, server in (request.mcp_servers or {}).items()}
    if request.tools and BRIDGE_SERVER in servers:
        servers[BRIDGE_SERVER] = _bridge(servers[BRIDGE_SERVER])
    return servers


def _server(name: str, server: Any) -> Frame:
    """Return a server of claude's form in codex's form: `headers` have another name, and there is no `type`."""
    if not isinstance(server, dict):
        raise UsageError(f"cannot use the MCP server {name!r}, because it is no table")
    kind = server.get("type")
    if kind == "sse":
        raise UsageError(
            f"cannot use the MCP server {name!r}, because codex knows stdio and streamable http alone",
            kind="unsupported",
            hint="take a server of type stdio or http",
        )
    known = {key: value for key, value in server.items() if key not in ("type", "headers")}
    return {**known, "http_headers": server["headers"]} if "headers" in server else known


def _bridge(server: Frame) -> Frame:
    """Return the bridge as a server. Its tools run without a question in every sandbox, in parallel, with a later time limit."""
    told: Frame = {key: server[key] for key in ("command", "args", "env") if key in server}
    limit_ms = server.get("timeout")
    return {
        **told,
        "default_tools_approval_mode": "approve",
        "supports_parallel_tool_calls": True,
        "required": True,
        "startup_timeout_sec": STARTUP_S,
        **({"tool_timeout_sec": limit_ms / 1000} if isinstance(limit_ms, int | float) else {}),
    }


def bridge_words(request: LaunchRequest) -> list[str]:
    """Return the override that adds the bridge to `codex exec`. All users can read argv, so variables must not stand there.
    The server's command is a file in the scratch directory (`bridge_launcher`), which sets them and becomes the bridge.
    """
    server = servers_of(request)[BRIDGE_SERVER]
    started = {"command": sys.executable, "args": ["-I", "-S", f"{request.scratch}/{_LAUNCHER}"]}
    told = {key: value for key, value in server.items() if key != "env"} | started
    return ["-c", f"mcp_servers.{BRIDGE_SERVER}={toml_value(told)}"]


def bridge_launcher(request: LaunchRequest) -> dict[str, str]:
    """Return the name and text of the file that `bridge_words` names. The text holds the token; only the daemon's user can read it."""
    server = servers_of(request)[BRIDGE_SERVER]
    argv = [server["command"], *server.get("args", ())]
    return {_LAUNCHER: _LAUNCHER_TEXT.format(env=dict(server.get("env", {})), command=argv[0], argv=argv)}


def toml_value(value: Any) -> str:
    """Return a text, number, boolean, list or mapping in TOML, on one line. TOML has the escapes of JSON, and one for DEL."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(str(key))} = {toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# Mentions of skills in a prompt: `$name`, and `[$name](path)`
#
# codex 0.169.0 adds the whole SKILL.md of each mentioned skill to the prompt, also for skills of the repository and in an untrusted
# directory. No setting turns that off (measured: `skills.include_instructions`, `skills.bundled.enabled`, feature flags). Nothing
# else in a prompt is a command: `/name`, `@path`, `!command`, `{{name}}` and `/prompts:name` are text. Both ways out are measured:
#
# - `skills.config` switches a skill off by its name, for one run, beside the rules of the user's own settings. The prompt stays
#   as it is, so `$HOME` in shell code does too; but the names must not stand in argv.
# - A character that no name has behind the `$`.

_MENTION = re.compile(r"\$(?=[A-Za-z0-9_:-])")
_LINK = re.compile(r"\[\$(?=[A-Za-z0-9_:-])")
_NAME = re.compile(r"\$([A-Za-z0-9_:-]+)")
_MARK = "\u200b"
_HIDDEN = "zero-width space in each {} that could name a skill"
_MOST_RULES = 500


class Said(NamedTuple):
    """Prompt for codex, entries of `skills.config` for the run, and a description of the changes to the text."""

    content: Content
    rules: list[Frame]
    altered: str | None


def hidden(content: Content) -> Said:
    """Return the prompt with hidden mentions, for runs with settings in argv, where no word of a prompt may stand."""
    shown = _replaced(_MENTION, f"${_MARK}", content)
    return Said(shown, [], _HIDDEN.format("$name") if shown != content else None)


def switched_off(content: Content) -> Said:
    """Return the prompt with its named skills switched off. A link, which names a skill by its file, is hidden."""
    shown = _replaced(_LINK, f"[${_MARK}", content)
    names = dict.fromkeys(name for part in shown if isinstance(part, str) for name in _NAME.findall(part))
    if len(names) > _MOST_RULES:
        return hidden(content)
    rules = [{"name": name, "enabled": False} for name in names]
    return Said(shown, rules, _HIDDEN.format("[$name](path)") if shown != content else None)


def _replaced(pattern: re.Pattern[str], by: str, content: Content) -> Content:
    return tuple(pattern.sub(by, part) if isinstance(part, str) else part for part in content)
