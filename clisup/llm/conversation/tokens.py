"""How many tokens something may be: an estimate from its bytes, for deciding what to leave out. Never what is billed.

A text is its UTF-8 bytes divided by `BYTES_PER_TOKEN`. English prose has about 4 bytes a token with the tokenizers of today,
code and JSON 3 to 3.5; 3.5 errs to the side of too many for prose, which is the side that a limit wants. Other scripts have
more bytes a character and about as many tokens more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.tools import Tool, ToolDefinition

__all__ = ["BYTES_PER_TOKEN", "IMAGE_TOKENS", "MESSAGE_TOKENS", "estimate_tokens", "text_tokens"]

BYTES_PER_TOKEN = 3.5
IMAGE_TOKENS = 1600
"""An image of the largest size that Anthropic's API does not scale down (width x height / 750)."""
MESSAGE_TOKENS = 4
"""What marks a message or a tool call as one, beside its text."""


def text_tokens(text: str) -> int:
    """Of a text. Unpaired surrogates count, too."""
    return math.ceil(len(text.encode(errors="surrogatepass")) / BYTES_PER_TOKEN)


def estimate_tokens(
    messages: Iterable[Message], *, system: str | None = None, tools: Sequence[Tool | ToolDefinition] = ()
) -> int:
    """Of all that is sent: the messages, the system prompt, and what is told of the tools.

    What a CLI sends by itself (its own system prompt and tools) is not in it.
    """
    total = text_tokens(system) if system else 0
    for tool in tools:
        total += (
            MESSAGE_TOKENS + text_tokens(tool.name) + text_tokens(tool.description) + _json_tokens(tool.input_schema)
        )
    for message in messages:
        total += MESSAGE_TOKENS + sum(block_tokens(block) for block in message.content)
    return total


def block_tokens(block: Block) -> int:
    """Of one block."""
    if isinstance(block, TextBlock | ThinkingBlock):
        return text_tokens(block.text)
    if isinstance(block, ImageBlock):
        return IMAGE_TOKENS
    if isinstance(block, ToolUseBlock):
        return MESSAGE_TOKENS + text_tokens(block.name) + _json_tokens(block.input)
    return MESSAGE_TOKENS + _result_tokens(block)


def _result_tokens(block: ToolResultBlock) -> int:
    if isinstance(block.content, str):
        return text_tokens(block.content)
    return sum(block_tokens(part) for part in block.content)


def _json_tokens(value: Any) -> int:
    return text_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
