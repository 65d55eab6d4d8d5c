"""Tools of MCP servers, the calls of one answer, and the permissions for them."""
