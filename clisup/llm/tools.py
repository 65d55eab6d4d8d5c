"""Tools that a model may call: what is told of one, and how it is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from clisup.errors import UsageError
from clisup.llm.messages import ImageBlock, TextBlock

__all__ = ["PARKED_S", "AnyTool", "Tool", "ToolDefinition", "ToolOutput", "as_tools", "definitions_of", "runnable_of"]

PARKED_S = 600.0
"""Seconds that a call of a `ToolDefinition` waits for its result, where the definition names no `timeout_s`."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """Tool that the caller runs: a call of it ends the stream, and the next prompt brings the result.

    `timeout_s` is how long a call waits for its result; None: `PARKED_S`. Raises `UsageError` for a name or schema that no API takes.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        problem, hint = "", ""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            problem, hint = "its name is not 1 to 64 of a-z, A-Z, 0-9, _ and -", "choose another name"
        elif not isinstance(self.description, str):
            problem, hint = "its description is no text", 'write one, or ""'
        elif not isinstance(self.input_schema, Mapping) or self.input_schema.get("type") != "object":
            problem, hint = "its input_schema is no JSON Schema of type object", 'give {"type": "object", ...}'
        elif self.timeout_s is not None and not self.timeout_s > 0:
            problem, hint = f"its timeout_s is {self.timeout_s}", f"give seconds, or None for {PARKED_S:g}"
        if problem:
            raise UsageError(f"the tool {self.name!r:.100} cannot be defined: {problem}", kind="usage", hint=hint)

    @property
    def waits_s(self) -> float:
        """Seconds that a call of it waits for its result."""
        return PARKED_S if self.timeout_s is None else float(self.timeout_s)


AnyTool = Tool | ToolDefinition | Mapping[str, Any]
"""Values that `tools=` takes: tools that run here, definitions of tools that the caller runs, or such definitions as mappings."""


def as_tools(tools: Sequence[AnyTool]) -> tuple[Tool | ToolDefinition, ...]:
    """Return the tools, with each mapping as a `ToolDefinition`.

    Raises `UsageError` for what is no tool: most often a function without `@tool`.
    """
    if not isinstance(tools, Iterable) or isinstance(tools, Mapping):
        raise UsageError(
            f"cannot offer {tools!r:.100} as tools, because it is no list of them",
            kind="usage",
            hint="give tools=[...]",
        )
    return tuple(_defined(tool) if isinstance(tool, Mapping) else _checked(tool) for tool in tools)


def definitions_of(tools: Iterable[Tool | ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the tools that the caller runs."""
    return tuple(tool for tool in tools if isinstance(tool, ToolDefinition))


def runnable_of(tools: Iterable[Tool | ToolDefinition]) -> tuple[Tool, ...]:
    """Return the tools that run here."""
    return tuple(tool for tool in tools if not isinstance(tool, ToolDefinition))


def _checked(tool: Any) -> Tool | ToolDefinition:
    if isinstance(tool, ToolDefinition):
        return tool
    if not all(hasattr(tool, name) for name in ("name", "description", "input_schema", "timeout_s", "run")):
        called = getattr(tool, "__name__", repr(tool))
        raise UsageError(
            f"cannot offer {called} as a tool, because it is none",
            hint=f"decorate it with @tool, or give tool({called})",
        )
    found: Tool = tool
    return found


def _defined(given: Mapping[str, Any]) -> ToolDefinition:
    """Make a definition of a mapping: our own keys, or OpenAI's `{"type": "function", "function": {...}}`."""
    about = given
    if given.get("type") == "function" and isinstance(given.get("function"), Mapping):
        theirs = given["function"]
        about = {"name": theirs.get("name"), "description": theirs.get("description") or ""}
        about["input_schema"] = theirs.get("parameters") or {"type": "object", "properties": {}}
    unknown = sorted(about.keys() - {"name", "description", "input_schema", "timeout_s"})
    if unknown or "name" not in about or "input_schema" not in about:
        why = f"it has the unknown key {unknown[0]!r}" if unknown else "name or input_schema is missing"
        raise UsageError(
            f"the mapping {dict(given)!r:.100} defines no tool: {why}",
            kind="usage",
            hint="give name, description, input_schema and timeout_s, or OpenAI's form with type and function",
        )
    return ToolDefinition(
        about["name"], about.get("description") or "", about["input_schema"], timeout_s=about.get("timeout_s")
    )
