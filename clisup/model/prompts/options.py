"""Options of a session or a prompt: a client's tools, a schema of the answer, sampling; and the prompt as it is stored.

Pure.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

import json
from collections.abc import Mapping
from typing import Annotated, Any, Required, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from clisup.model.structs import JsonObject

BRIDGE_SERVER = "clisup"
"""Name of clisup's MCP server: claude calls a client's tool `mcp__clisup__<name>`."""

MAX_TOOLS = 128
MAX_TOOLS_BYTES = 1024 * 1024


class ToolSpec(BaseModel):
    """Tool of a client. `timeout_s` is the longest duration of a call; None: `daemon.tool_timeout_s`.

    `wait_s` is the time that a call waits while no client serves the session; None: `daemon.tool_wait_s`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=64 * 1024)] = ""
    input_schema: JsonObject
    timeout_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)] | None = None
    wait_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)] | None = None

    @field_validator("input_schema")
    @classmethod
    def _of_an_object(cls, schema: JsonObject) -> JsonObject:
        if schema.get("type") != "object":
            raise ValueError('its type must be "object": a tool takes named arguments')
        return schema


def _checked(tools: list[ToolSpec]) -> list[ToolSpec]:
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the name {twice[0]!r} stands twice: each tool needs a name of its own")
    size = len(json.dumps([tool.model_dump(exclude_none=True) for tool in tools], separators=(",", ":")))
    if size > MAX_TOOLS_BYTES:
        raise ValueError(f"together they are {size} bytes, and at most {MAX_TOOLS_BYTES} are taken")
    return tools


Tools = Annotated[list[ToolSpec], Field(min_length=1, max_length=MAX_TOOLS), AfterValidator(_checked)]
"""Tools of `session/new`: distinct names, and at most `MAX_TOOLS_BYTES` of JSON together."""


class SamplingParams(BaseModel):
    """Sampling of one answer. `max_tokens` limits its length, `stop` ends it, and `seed` repeats it as far as the API can.

    `tool_choice` is `any` (the model has to call a tool), or `tool:` and the name of the tool to call. It holds for the first answer
    of a turn. `parallel_tool_calls`: whether one answer may have several calls.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    tool_choice: Annotated[str, Field(pattern=r"^(any|tool:.{1,128})$")] | None = None
    parallel_tool_calls: bool | None = None


MAX_SCHEMA_BYTES = 96 * 1024  # as `schema_text` writes it: one word of a command line holds 128 KiB


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return the schema as compact JSON of ASCII alone."""
    return json.dumps(schema, separators=(",", ":"))


def object_in(text: str) -> JsonObject | None:
    """Return the JSON object that is the whole answer, or None for any other answer."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _check_schema(schema: JsonObject) -> JsonObject:
    if schema.get("type") != "object":
        raise ValueError('an output_schema is the JSON Schema of an object: its "type" is "object"')
    if (size := len(schema_text(schema))) > MAX_SCHEMA_BYTES:
        raise ValueError(f"an output_schema has at most {MAX_SCHEMA_BYTES} bytes, and this one {size}")
    return schema


OutputSchema = Annotated[JsonObject, AfterValidator(_check_schema)]


class StoredPrompt(TypedDict, total=False):
    """Accepted prompt as it is stored until its turn ends. Prompts of an earlier release have fewer keys."""

    text: Required[str]
    salt: str  # of the digest in the journal, which outlives the file
    expand: bool
    actor: JsonObject
    when_limited: str
    timeout_s: float
    command: bool  # a command of the CLI itself, passed on as it is
    output_schema: JsonObject
    tools: list[JsonObject]
    sampling: JsonObject
    tool_results: list[JsonObject]
    content: list[JsonObject]
