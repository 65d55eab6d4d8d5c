"""MCP servers of a session in codex's words, including the bridge to the tools of the session's client (0.169.0)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from clisup.backends.base import LaunchRequest
from clisup.errors import UsageError
from clisup.model.prompts.options import BRIDGE_SERVER

__all__ = ["bridge_launcher", "bridge_words", "servers_of", "toml_value"]

Frame = dict[str, Any]
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
