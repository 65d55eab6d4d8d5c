"""Tools that a session's client runs: open calls, and the MCP bridge that brings the tools to the CLI."""
