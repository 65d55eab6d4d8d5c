"""Definition of a tool that the session's client runs for the model: the `tools` of `session/new`. Pure."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

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
    input_schema: dict[str, Any]
    timeout_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)] | None = None
    wait_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)] | None = None

    @field_validator("input_schema")
    @classmethod
    def _of_an_object(cls, schema: dict[str, Any]) -> dict[str, Any]:
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
