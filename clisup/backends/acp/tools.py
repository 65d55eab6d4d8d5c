"""Tool calls of the Agent Client Protocol, and content blocks as blocks.

A command's output may stand outside `content`. codex-acp 2.6.0 sends the output in pieces in `_meta.terminal_output_delta`, and
the exit code in `_meta.terminal_exit`, beside a block of the type `terminal`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from clisup.backends.frames import get_dict, get_int, get_str
from clisup.model.events import Block, ToolResult

__all__ = ["TERMINAL_CHARS", "AcpTool", "block_of", "result_of"]

TERMINAL_CHARS = 1_048_576  # limit of a command's output in pieces; the spool has all of it


@dataclass
class AcpTool:
    """State of one tool call. Each update replaces the fields that it has."""

    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    announced: bool = False
    ended: bool = False
    output: list[str] = field(default_factory=list)
    room: int = TERMINAL_CHARS
    exit_code: int | None = None
    tells_terminal: bool = False

    def learn(self, update: dict[str, Any]) -> None:
        self.fields.update({name: value for name, value in update.items() if value is not None})
        meta = get_dict(update, "_meta")
        if piece := get_str(get_dict(meta, "terminal_output_delta"), "data"):
            if self.room > 0:
                self.output.append(piece[: self.room])
            self.room -= len(piece)
        self.tells_terminal |= not meta.keys().isdisjoint(("terminal_output_delta", "terminal_exit"))
        code = get_int(get_dict(meta, "terminal_exit"), "exit_code")
        self.exit_code = self.exit_code if code is None else code

    @property
    def input(self) -> dict[str, Any]:
        """Arguments of the call. `rawInput` is optional; without it, the input is the agent's description for people."""
        raw = self.fields.get("rawInput")
        if isinstance(raw, dict):
            return raw
        told = {"rawInput": raw} if raw else {}
        return told | {name: self.fields[name] for name in ("title", "locations") if self.fields.get(name)}


def result_of(tool: AcpTool, *, is_error: bool) -> ToolResult:
    """Return the result of a call: `content` and the terminal's output, or `rawOutput` if there is nothing else.

    A failed command's output begins with its exit code, as codex's does.
    """
    told = tool.fields.get("content")
    items = [item for item in told if isinstance(item, dict)] if isinstance(told, list) else []
    output = "".join(tool.output)
    if tool.exit_code:
        output = f"exit code {tool.exit_code}\n{output}"
    if tool.tells_terminal:
        items = [item for item in items if get_str(item, "type") != "terminal"]
    if output:
        items.append({"type": "content", "content": {"type": "text", "text": output}})
    blocks = [_item(item) for item in items]
    text = "\n".join(block.text or "" for block in blocks if block.kind == "text")
    raw = tool.fields.get("rawOutput")
    if not blocks and raw is not None:
        text = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()
    only_text = all(block.kind == "text" for block in blocks)
    return ToolResult(
        tool_use_id=tool.id,
        content=text,
        blocks=None if only_text else tuple(blocks),
        is_error=is_error,
        truncated=tool.room < 0,
    )


def _item(item: dict[str, Any]) -> Block:
    """Return an item of a tool's content: a block, a change to a file, or a terminal (which we never offer)."""
    kind = get_str(item, "type")
    if kind == "content":
        return block_of(get_dict(item, "content"))
    if kind == "diff":
        change = {name: item[name] for name in ("path", "oldText", "newText") if isinstance(item.get(name), str)}
        return Block(kind="other", native_kind="diff", name=get_str(item, "path"), input=change)
    return Block(kind="other", native_kind=kind, name=get_str(item, "terminalId"))


def block_of(content: dict[str, Any]) -> Block:
    """Return a content block. A block of an unknown type becomes `other` with its own name."""
    kind = get_str(content, "type")
    if kind == "text":
        return Block(kind="text", text=get_str(content, "text") or "")
    if kind == "image":
        return Block(kind="image", media_type=get_str(content, "mimeType"), data=get_str(content, "data"))
    resource = get_dict(content, "resource") or content
    return Block(
        kind="other",
        native_kind=kind,
        name=get_str(resource, "uri"),
        text=get_str(resource, "text"),
        media_type=get_str(resource, "mimeType"),
    )
