"""Messages and prompts as `session/new` and `session/prompt` take them (docs/protocol.md). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.reading import BRIDGE_PREFIX
from clisup.llm.tools import ToolDefinition

__all__ = ["definitions_to_wire", "history_to_wire", "prompt_to_wire"]


def prompt_to_wire(prompt: Message, *, results: bool = False) -> str | list[dict[str, Any]]:
    """Return a prompt's text, or its blocks where it holds more. `results`: it may hold results of tools, too.

    A block's `cache` goes along: an API backend marks that place for its API, and a CLI ignores it.
    Raises `InvalidRequest` for blocks that no prompt may hold.
    """
    if all(isinstance(block, TextBlock) and not block.cache for block in prompt.content):
        return prompt.text
    kinds = (TextBlock, ImageBlock, ToolResultBlock) if results else (TextBlock, ImageBlock)
    wrong = next((block for block in prompt.content if not isinstance(block, kinds)), None)
    if wrong is not None:
        raise InvalidRequest(
            f"cannot prompt with a block of type {wrong.type}, because a prompt holds text and images",
            kind="invalid_request",
            hint="what was said before goes into the history",
        )
    return [_unmarked(block.model_dump(mode="json")) for block in prompt.content]


def _unmarked(wire: dict[str, Any]) -> dict[str, Any]:
    """Return the block without the marks that are not set, and those inside a result."""
    found = {name: value for name, value in wire.items() if name != "cache" or value}
    if isinstance(content := found.get("content"), list):
        found["content"] = [_unmarked({**part, "cache": False}) for part in content]
    return found


def definitions_to_wire(definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the `tools` of `session/prompt`."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
        for tool in definitions
    ]


def history_to_wire(history: Sequence[Message], ours: Collection[str] = ()) -> list[dict[str, Any]]:
    """The messages with all that an API would take. Left out are texts without a character, thinking without its maker's signature, and
    messages of which nothing stays: codex tells each reasoning as a message of its own.

    Calls of tools that are `ours` get the name by which the CLI has them, or the model would go on calling one that it has not.
    """
    messages = (
        {"role": message.role, "content": [wire for block in message.content if (wire := _block(block, ours))]}
        for message in history
    )
    return [message for message in messages if message["content"]]


def _block(block: Block, ours: Collection[str]) -> dict[str, Any] | None:
    if (isinstance(block, TextBlock) and not block.text) or (isinstance(block, ThinkingBlock) and not block.signature):
        return None
    wire: dict[str, Any] = block.model_dump(mode="json", exclude_none=True)
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        wire["content"] = [part for part in wire["content"] if part.get("text", "image")]
    if isinstance(block, ToolUseBlock) and block.name in ours:
        wire["name"] = BRIDGE_PREFIX + block.name
    return wire
