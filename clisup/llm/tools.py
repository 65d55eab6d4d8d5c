"""Tools that a model may call: what is told of one, and how it is run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from clisup.errors import UsageError
from clisup.llm.messages import ImageBlock, TextBlock

__all__ = ["Tool", "ToolOutput", "check_tools"]


class ToolOutput(NamedTuple):
    """What a tool answers."""

    content: str | Sequence[TextBlock | ImageBlock]
    is_error: bool = False


class Tool(Protocol):
    """A tool by its wire form. `@tool` makes one from a typed function; anything with these four will do."""

    @property
    def name(self) -> str:
        """1 to 64 of `a-zA-Z0-9_-`."""

    @property
    def description(self) -> str:
        """What the model reads to know when to call it."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema, of type object."""

    @property
    def timeout_s(self) -> float | None:
        """How long a call may take; None: the daemon's default."""

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        """Run it. Never raises but for cancellation: what goes wrong is an `is_error` output that the model can read."""


def check_tools(tools: Sequence[Any]) -> None:
    """Raise `UsageError` where one of them is no tool: most often a function that nobody decorated. Or where one stands alone."""
    if not isinstance(tools, Iterable):
        raise UsageError(
            f"cannot offer {tools!r:.100} as tools, because it is no list of them",
            kind="usage",
            hint="give tools=[...]",
        )
    for tool in tools:
        if not all(hasattr(tool, name) for name in ("name", "description", "input_schema", "timeout_s", "run")):
            called = getattr(tool, "__name__", repr(tool))
            raise UsageError(
                f"cannot offer {called} as a tool, because it is none",
                hint=f"decorate it with @tool, or give tool({called})",
            )
