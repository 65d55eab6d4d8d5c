"""How a CLI finds the MCP bridge of its session: an entry beside the servers that the client brought, in a file of its own.

The entry is in claude's form; the adapters of other CLIs make theirs of it (`type`, `alwaysLoad` and `timeout` are claude's words,
2.1.329). The token goes by the entry's `env`, so it is in the bridge's environment and in no other process's, and never in argv.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import clisup
from clisup.errors import UsageError
from clisup.model.prompts.tool_spec import BRIDGE_SERVER

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session
    from clisup.daemon.tools.calls import ToolDesk

__all__ = ["BRIDGE_FILE", "check_brought", "servers_with_bridge"]

BRIDGE_FILE = os.path.join(os.path.dirname(clisup.__file__), "bridge", "bridge.py")
SLACK_S = 300.0
"""So much longer than a tool's own time the CLI is to wait: for somebody who serves, and for a daemon that comes back."""


def check_brought(mcp_config: dict[str, Any] | None) -> None:
    """May our server stand beside these? Raises `UsageError(invalid_params)`."""
    servers = (mcp_config or {}).get("mcpServers", {})
    if not isinstance(servers, dict):
        reason = "its mcpServers is no object, so that the tools' own server cannot be added"
    elif BRIDGE_SERVER in servers:
        reason = f"its server {BRIDGE_SERVER!r} has the name of the one that serves the session's tools"
    else:
        return
    raise UsageError(
        f"cannot take this mcp_config together with tools, because {reason}",
        hint="mend the mcp_config, or give no tools",
        param="mcp_config",
    )


def servers_with_bridge(session: Session, tools: ToolDesk) -> dict[str, Any]:
    """The `mcpServers` of a session with these tools: the client's, and our server."""
    limits = tools.limits
    longest = tools.longest
    limit_s = max(limits.timeout_s, longest.timeout_s) + max(limits.wait_s, longest.wait_s) + SLACK_S
    bridge = {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-I", "-S", BRIDGE_FILE],
        "env": {
            "CLISUP_BRIDGE_SOCKET": session.services.socket,
            "CLISUP_BRIDGE_TOKEN": tools.token or "",
        },
        "alwaysLoad": True,
        "timeout": int(limit_s * 1000),
    }
    return {**(session.dir.read_mcp_servers() or {}), BRIDGE_SERVER: bridge}
