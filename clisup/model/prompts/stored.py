"""An accepted prompt as it is stored until its turn ends."""

from __future__ import annotations

from typing import Any, Required, TypedDict


class StoredPrompt(TypedDict, total=False):
    """A stored prompt. Prompts of an earlier release have fewer keys."""

    text: Required[str]
    expand: bool
    actor: dict[str, Any]
    when_limited: str
    command: bool  # a command of the CLI itself, passed on as it is
    output_schema: dict[str, Any]
    tools: list[dict[str, Any]]
    sampling: dict[str, Any]
    tool_results: list[dict[str, Any]]
    content: list[dict[str, Any]]
