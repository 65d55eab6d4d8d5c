"""A conversation as text, for a backend that takes no history: it is put before the first prompt. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock

__all__ = ["seeded", "transcript_of"]

_BEFORE = (
    "What follows is the conversation so far, which was held elsewhere. It is yours: go on with it as if it had been here. "
    "The tools in it have run already."
)


def transcript_of(messages: Sequence[Message]) -> str:
    """The conversation between tags, with calls and their results as JSON and text. Thinking is left out, images are named."""
    parts = (f"<{message.role}>\n{_said(message)}\n</{message.role}>" for message in messages)
    return "\n".join(["<conversation>", *parts, "</conversation>"])


def seeded(history: Sequence[Message], prompt: Message, *, system: str | None = None) -> Message:
    """The prompt with the instructions and the history before it, as one message of the user. Without either, the prompt."""
    parts = [f"<instructions>\n{system}\n</instructions>"] if system else []
    parts += [f"{_BEFORE}\n\n{transcript_of(history)}"] if history else []
    if not parts:
        return prompt
    return Message(role="user", content=(TextBlock(text="\n\n".join(parts) + "\n\n"), *prompt.content))


def _said(message: Message) -> str:
    return "\n".join(text for block in message.content if (text := _text(block)))


def _text(block: Block) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ToolUseBlock):
        return f'<tool_use name="{block.name}">{json.dumps(block.input, ensure_ascii=False)}</tool_use>'
    if isinstance(block, ToolResultBlock):
        return f"<tool_{'error' if block.is_error else 'result'}>\n{block.text}\n</tool_{'error' if block.is_error else 'result'}>"
    return f"[an image, {block.media_type}]" if isinstance(block, ImageBlock) else ""
