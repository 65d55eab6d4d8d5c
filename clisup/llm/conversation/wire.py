"""From messages to the JSON of an API's request: Anthropic's Messages, or OpenAI's Chat Completions. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from clisup.errors import UsageError
from clisup.llm.conversation.context import context_of
from clisup.llm.conversation.nodes import Turn
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.sound import sound

__all__ = ["CACHE_MARKERS", "WireFormat", "to_wire_messages"]

WireFormat = Literal["anthropic", "openai"]

CACHE_MARKERS = 4
"""How many cache markers Anthropic's API takes in one request, those of system prompt and tools included."""


def to_wire_messages(
    conversation: Iterable[Turn] | Iterable[Message],
    format: WireFormat,  # noqa: A002 - the word of the field
    *,
    markers: int = CACHE_MARKERS,
) -> list[dict[str, Any]]:
    """Turns or messages as the `messages` of an API's request: `"anthropic"` (Messages) or `"openai"` (Chat Completions).

    They are made `sound` first. A system prompt is none of them: Anthropic takes it beside them, for OpenAI put
    `{"role": "system", ...}` before them. With `"anthropic"` the last `markers` blocks that are marked by `cache` get
    `cache_control`; `"openai"` has no such markers, and no thinking. Thinking without a signature goes nowhere.
    Raises `UsageError` for another format.
    """
    if format not in get_args(WireFormat):
        raise UsageError(f"cannot write messages as {format!r}, because there are {' and '.join(get_args(WireFormat))}")
    parts = list(conversation)
    turns = [part for part in parts if isinstance(part, Turn)]
    messages = context_of(turns) if turns else tuple(part for part in parts if isinstance(part, Message))
    messages = sound(_without_thinking(messages, signed=format == "anthropic"))
    if format == "anthropic":
        return _anthropic(messages, markers)
    return [wire for message in messages for wire in _openai(message)]


def _without_thinking(messages: Iterable[Message], *, signed: bool) -> Iterator[Message]:
    """Without thinking; `signed`: but for that with its maker's proof."""
    for message in messages:
        kept = (b for b in message.content if not isinstance(b, ThinkingBlock) or (signed and b.signature))
        yield Message(role=message.role, content=tuple(kept))


def _anthropic(messages: Sequence[Message], markers: int) -> list[dict[str, Any]]:
    contents = [[(block, _anthropic_block(block)) for block in message.content] for message in messages]
    marked = [
        part for content in contents for block, part in content if not isinstance(block, ThinkingBlock) and block.cache
    ]
    for part in marked[-markers:] if markers > 0 else ():
        part["cache_control"] = {"type": "ephemeral"}
    return [
        {"role": message.role, "content": [part for _, part in content]}
        for message, content in zip(messages, contents, strict=True)
    ]


def _anthropic_block(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ThinkingBlock):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if isinstance(block, ImageBlock):
        source = {"type": "base64", "media_type": block.media_type, "data": block.data}
        return {"type": "image", "source": source}
    if isinstance(block, ToolUseBlock):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    content = block.content if isinstance(block.content, str) else [_anthropic_block(part) for part in block.content]
    wire: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content}
    return wire | {"is_error": True} if block.is_error else wire


def _openai(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "assistant":
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.input, ensure_ascii=False)},
            }
            for call in message.tool_uses
        ]
        yield {"role": "assistant", "content": message.text or None} | ({"tool_calls": calls} if calls else {})
        return
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    for result in results:
        text = result.text or "(no text)"
        yield {
            "role": "tool",
            "tool_call_id": result.tool_use_id,
            "content": f"Error: {text}" if result.is_error else text,
        }
    # a tool's message takes text alone: images of results come in the user's message after them
    shown = [part for result in results if not isinstance(result.content, str) for part in result.content]
    own = [block for block in message.content if isinstance(block, TextBlock | ImageBlock)]
    parts = [_openai_part(part) for part in (*(p for p in shown if isinstance(p, ImageBlock)), *own)]
    if parts:
        only_text = len(parts) == 1 and parts[0]["type"] == "text"
        yield {"role": "user", "content": parts[0]["text"] if only_text else parts}


def _openai_part(block: TextBlock | ImageBlock) -> Mapping[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{block.data}"}}
