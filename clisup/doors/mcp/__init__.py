"""`clisup mcp`: a server of the Model Context Protocol, through which one agent starts and follows others."""
