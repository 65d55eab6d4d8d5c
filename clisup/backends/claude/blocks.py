"""Content blocks of claude's frames as blocks and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clisup.backends.claude.frames import ContentBlock, as_blocks
from clisup.backends.frames import MalformedError
from clisup.model.events import BackendStatus, Block, EventBase, ToolResult, ToolUse

__all__ = ["blocks_of", "tool_result", "tool_uses", "user_text"]

DETAIL_CHARS = 2000  # of a text in a status; the spool has the whole line
_INTERRUPTED = "[Request interrupted by user"
_PERSISTED = (
    "<persisted-output>"  # begins a result that the CLI cut: a preview, and the path of the file with the whole result
)


def _image(block: ContentBlock) -> Block:
    source = block.source if isinstance(block.source, dict) else {}
    media_type, data = (source.get(name) for name in ("media_type", "data"))
    return Block(
        kind="image",
        media_type=media_type if isinstance(media_type, str) else None,
        data=data if isinstance(data, str) else None,
    )


_MAKERS: dict[str, Callable[[ContentBlock], Block]] = {
    "text": lambda block: Block(kind="text", text=block.text or ""),
    "thinking": lambda block: Block(kind="thinking", text=block.thinking or "", signature=block.signature or None),
    "redacted_thinking": lambda _: Block(kind="redacted_thinking"),
    "tool_use": lambda block: Block(kind="tool_use", tool_use_id=block.id, name=block.name, input=block.input or {}),
    "image": _image,
}


def _other(block: ContentBlock) -> Block:
    return Block(
        kind="other",
        native_kind=block.type,
        text=block.text,
        tool_use_id=block.tool_use_id or block.id,
        name=block.name,
    )


def blocks_of(content: list[ContentBlock] | str) -> tuple[Block, ...]:
    """Return the blocks of a message. A block of an unknown type becomes `other` with its own name."""
    if isinstance(content, str):
        return (Block(kind="text", text=content),)
    return tuple(_MAKERS.get(block.type, _other)(block) for block in content)


def tool_uses(content: list[ContentBlock] | str, parent: str | None) -> list[EventBase]:
    """Return the calls in a message, except tools that the API runs itself (`server_tool_use`): they have no result frame."""
    if isinstance(content, str):
        return []
    return [
        ToolUse(tool_use_id=block.id, name=block.name, input=block.input or {}, parent_tool_use_id=parent)
        for block in content
        if block.type == "tool_use" and block.id and block.name
    ]


def tool_result(block: ContentBlock, parent: str | None) -> ToolResult:
    """Return a tool's result. `is_error` may be absent (Read, Write, MCP). Raises MalformedError for a wrong shape."""
    if block.tool_use_id is None:
        raise MalformedError("a tool result without tool_use_id")
    text, blocks = _result_content(block)
    return ToolResult(
        tool_use_id=block.tool_use_id,
        content=text,
        blocks=blocks,
        is_error=block.is_error or False,
        truncated=text.startswith(_PERSISTED),
        parent_tool_use_id=parent,
    )


def _result_content(block: ContentBlock) -> tuple[str, tuple[Block, ...] | None]:
    if not isinstance(block.content, list):
        return (block.content if isinstance(block.content, str) else "", None)
    items = as_blocks(block.content)
    text = "\n".join(item.text or "" for item in items if item.type == "text")
    only_text = all(item.type == "text" for item in items)
    return text, None if only_text else blocks_of(items)


def user_text(content: list[ContentBlock] | str, status: str) -> list[EventBase]:
    """Return the texts of a user frame as a status: the CLI wrote them, not the caller."""
    blocks: Sequence[Block] = [block for block in blocks_of(content) if block.native_kind != "tool_result"]
    if not blocks:
        return []
    text = "\n".join(block.text or f"[{block.native_kind or block.kind}]" for block in blocks)
    if text.startswith(_INTERRUPTED):
        status = "interrupted"
    return [BackendStatus(status=status, detail=text[:DETAIL_CHARS])]
