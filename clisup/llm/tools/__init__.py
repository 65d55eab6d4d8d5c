"""Tools that a model may call: `definitions` describes them, `functions` makes them of typed functions."""

from clisup.llm.tools.definitions import PARKED_S, AnyTool, Tool, ToolDefinition, ToolOutput

__all__ = ["PARKED_S", "AnyTool", "Tool", "ToolDefinition", "ToolOutput"]
