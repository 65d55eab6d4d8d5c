"""The MCP bridge: one file, which CLIs start with `python -I -S`. Nothing of clisup imports it but `clisup mcp-bridge`."""
