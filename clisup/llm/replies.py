"""A tool's output as the wire of `tool/call` has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from clisup.client.aio_tools import ToolReply
from clisup.llm.messages import ImageBlock, TextBlock

__all__ = ["reply_of"]


def reply_of(content: str | Sequence[TextBlock | ImageBlock], is_error: bool) -> ToolReply:
    """The reply; where a cache may end is no matter of a tool's result."""
    if isinstance(content, str):
        return ToolReply(content, is_error)
    blocks = [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image", "media_type": block.media_type, "data": block.data}
        for block in content
    ]
    return ToolReply(blocks, is_error)
