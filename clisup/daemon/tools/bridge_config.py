"""Entry of the session's MCP bridge beside the client's own servers, in a file for the CLI.

The entry has claude's form (`type`, `alwaysLoad` and `timeout`, 2.1.329), and the adapters of other CLIs convert it.
The entry's `env` holds the token, so only the bridge's environment has it, and never an argv.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import clisup
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.tools.calls import SessionTools
from clisup.errors import UsageError
from clisup.model.prompts.tool_spec import BRIDGE_SERVER

__all__ = ["BRIDGE_FILE", "check_mcp_config", "servers_with_bridge"]

BRIDGE_FILE = os.path.join(os.path.dirname(clisup.__file__), "bridge", "bridge.py")
SLACK_S = 300.0
"""Extra time that the CLI waits beyond a tool's own time: for a client that serves, and for a restarted daemon."""


def check_mcp_config(mcp_config: dict[str, Any] | None) -> None:
    """Raise `UsageError(invalid_params)` if the bridge cannot be added to these servers."""
    servers = (mcp_config or {}).get("mcpServers", {})
    if not isinstance(servers, dict):
        reason = "its mcpServers is not an object"
    elif BRIDGE_SERVER in servers:
        reason = f"the name {BRIDGE_SERVER!r} is reserved for the server of the session's tools"
    else:
        return
    raise UsageError(
        f"mcp_config cannot be combined with tools: {reason}",
        hint="change the mcp_config, or omit the tools",
        param="mcp_config",
    )


def servers_with_bridge(context: SessionContext, tools: SessionTools) -> dict[str, Any]:
    """Return the `mcpServers` of a session with tools: the client's servers and the bridge."""
    limits = tools.limits
    longest = tools.longest
    limit_s = max(limits.timeout_s, longest.timeout_s) + max(limits.wait_s, longest.wait_s) + SLACK_S
    bridge = {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-I", "-S", BRIDGE_FILE],
        "env": {
            "CLISUP_BRIDGE_SOCKET": context.services.socket,
            "CLISUP_BRIDGE_TOKEN": tools.token or "",
        },
        "alwaysLoad": True,
        "timeout": int(limit_s * 1000),
    }
    return {**(context.dir.read_mcp_servers() or {}), BRIDGE_SERVER: bridge}
