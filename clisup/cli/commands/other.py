"""`clisup version` and `clisup mcp-bridge`."""

from __future__ import annotations

import click

from clisup import __version__

__all__ = ["mcp_bridge", "version"]


@click.command("version")
def version() -> int:
    """Print the version of this command.

    \b
    Example:
      clisup version
    """
    print(f"clisup {__version__}")
    return 0


@click.command("mcp-bridge")
def mcp_bridge() -> int:
    """Serve a session's tools to its CLI, as an MCP server on stdio. CLIs start it, users do not.

    For a session that was opened with `tools`, the daemon adds this server to the CLI's MCP configuration (as a file, which
    starts faster than this command). CLISUP_BRIDGE_SOCKET and CLISUP_BRIDGE_TOKEN name the session; the token allows
    only calls of the session's tools. To see the view of a CLI:

    \b
    Example:
      export CLISUP_BRIDGE_SOCKET=... CLISUP_BRIDGE_TOKEN=...      # from private/bridge.json of the session
      clisup mcp-bridge < messages.jsonl                           # one of them: {"id":1,"method":"tools/list"}
    """
    from clisup.bridge.bridge import main

    return main()
