"""Tools that a model may call: their descriptions for the model, and the way to run them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from clisup.errors import UsageError
from clisup.llm.failures import usage_error
from clisup.llm.messages import ImageBlock, TextBlock

PARKED_S = 600.0
"""Default seconds that a call of a `ToolDefinition` waits for its result."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolOutput(NamedTuple):
    """Answer of a tool."""

    content: str | Sequence[TextBlock | ImageBlock]
    is_error: bool = False


class Tool(Protocol):
    """Tool that this program runs. `@tool` makes one from a typed function. Any object with these members is a tool."""

    @property
    def name(self) -> str:
        """Name: 1 to 64 of `a-zA-Z0-9_-`."""

    @property
    def description(self) -> str:
        """Description, by which the model decides to call the tool."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the input, of type object."""

    @property
    def timeout_s(self) -> float | None:
        """Seconds that a call may take. None is the daemon's default."""

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        """Run the tool. Failures are `is_error` outputs for the model. Raises nothing but cancellation."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """Tool that the caller runs: a call ends the stream, and the next prompt brings the result.

    A call waits `timeout_s` for its result, by default `PARKED_S`. Raises `UsageError` for a name or schema that no API takes.
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
            problem, hint = "its description is not a text", 'write one, or ""'
        elif not isinstance(self.input_schema, Mapping) or self.input_schema.get("type") != "object":
            problem, hint = "its input_schema is not a JSON Schema of type object", 'give {"type": "object", ...}'
        elif self.timeout_s is not None and not self.timeout_s > 0:
            problem, hint = f"its timeout_s is {self.timeout_s}", f"give seconds, or None for {PARKED_S:g}"
        if problem:
            raise usage_error(f"the tool {self.name!r:.100} cannot be defined: {problem}", hint)

    @property
    def waits_s(self) -> float:
        """Seconds that a call waits for its result."""
        return PARKED_S if self.timeout_s is None else float(self.timeout_s)


AnyTool = Tool | ToolDefinition | Mapping[str, Any]
"""Values of `tools=`: tools that run here, definitions of the caller's tools, or such definitions as mappings."""


def as_tools(tools: Sequence[AnyTool]) -> tuple[Tool | ToolDefinition, ...]:
    """Return the tools, with each mapping as a `ToolDefinition`.

    Raises `UsageError` for other values, most often a function without `@tool`.
    """
    if not isinstance(tools, Iterable) or isinstance(tools, Mapping):
        raise usage_error(f"tools= is a list of tools, unlike {tools!r:.100}", "give tools=[...]")
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
            f"{called} is not a tool",
            hint=f"decorate it with @tool, or give tool({called})",
        )
    found: Tool = tool
    return found


def _defined(given: Mapping[str, Any]) -> ToolDefinition:
    """Make a definition of a mapping, with clisup's keys or OpenAI's `{"type": "function", "function": {...}}`."""
    about = given
    if given.get("type") == "function" and isinstance(given.get("function"), Mapping):
        theirs = given["function"]
        about = {"name": theirs.get("name"), "description": theirs.get("description") or ""}
        about["input_schema"] = theirs.get("parameters") or {"type": "object", "properties": {}}
    unknown = sorted(about.keys() - {"name", "description", "input_schema", "timeout_s"})
    if unknown or "name" not in about or "input_schema" not in about:
        why = f"it has the unknown key {unknown[0]!r}" if unknown else "name or input_schema is missing"
        raise usage_error(
            f"the mapping {dict(given)!r:.100} defines no tool: {why}",
            "give name, description, input_schema and timeout_s, or OpenAI's form with type and function",
        )
    return ToolDefinition(
        about["name"], about.get("description") or "", about["input_schema"], timeout_s=about.get("timeout_s")
    )
