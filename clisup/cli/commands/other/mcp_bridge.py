"""`clisup mcp-bridge`: the MCP server that a session's CLI starts. Its own file does all of it."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command("mcp-bridge")
def command() -> int:
    """Serve a session's tools to its CLI, as an MCP server on stdio. A CLI starts it, not you.

    For a session that was opened with `tools` the daemon adds this server to the CLI's MCP configuration (as the file itself,
    which starts faster than this command). CLISUP_BRIDGE_SOCKET and CLISUP_BRIDGE_TOKEN say whose bridge it is; the token is
    good for calls of the session's tools alone. To see what a CLI sees:

    \b
    Example:
      export CLISUP_BRIDGE_SOCKET=... CLISUP_BRIDGE_TOKEN=...      # private/bridge.json of the session has them
      clisup mcp-bridge < messages.jsonl                           # one of them: {"id":1,"method":"tools/list"}
    """
    from clisup.bridge.bridge import main

    return main()
