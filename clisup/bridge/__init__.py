"""MCP bridge: one file, which CLIs start with `python -I -S`. Only the command `clisup mcp-bridge` imports it."""
