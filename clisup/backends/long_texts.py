"""Strings of a CLI's frames that the decoder only passes on. Their middles may be cut out before the decoder reads the line.

A string belongs here if it is left out, or becomes (part of) a payload of an event of its own line, and the decoder reads at most
its first 4,096 characters. A string that the decoder searches, compares or remembers does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from clisup.backends.frames import Frame, get_dict, get_str
from clisup.model.lines.long_line import Path

__all__ = [
    "acp_passes_on", "claude_passes_on", "codex_passes_on", "exec_passes_on", "gemini_passes_on", "qwen_passes_on",
]  # fmt: skip

_Places = frozenset[Path]
_REST = "**"  # end of a place: all strings below it

_CLAUDE: Mapping[str, _Places] = {
    "user": frozenset({
        ("message", "content"),
        ("message", "content", "*", "text"),
        ("message", "content", "*", "content"),
        ("message", "content", "*", "content", "*", "text"),
        ("message", "content", "*", "content", "*", "source", "data"),
        ("tool_use_result", _REST),  # a duplicate, which the decoder skips
    }),
    "assistant": frozenset({
        ("message", "content"),
        ("message", "content", "*", "text"),
        ("message", "content", "*", "thinking"),
        ("message", "content", "*", "input", _REST),
    }),
    "stream_event": frozenset({
        ("event", "delta", "text"),
        ("event", "delta", "thinking"),
        ("event", "delta", "partial_json"),
    }),
}  # fmt: skip
_QWEN: Mapping[str, _Places] = {"user": _CLAUDE["user"]}  # the decoder searches the ends of the model's words
_GEMINI: Mapping[str, _Places] = {"tool_result": frozenset({("output",)})}  # the decoder joins deltas to a message
_COMMAND_OUTPUT: _Places = frozenset(
    {("params", "item", "aggregatedOutput")}
)  # the decoder searches the output of other tools
_EXEC_OUTPUT: _Places = frozenset({("item", "aggregated_output")})
_ACP_CONTENT: _Places = frozenset({
    ("params", "update", "content", "*", "content", "text"),
    ("params", "update", "content", "*", "content", "data"),
    ("params", "update", "content", "*", "oldText"),
    ("params", "update", "content", "*", "newText"),
    ("params", "update", "rawOutput", _REST),  # read only without content
})  # fmt: skip


def claude_passes_on(frame: Frame, path: Path) -> bool:
    """Tell for claude: tools' results and calls, and the model's words. Synthetic words are searched for the error."""
    message = get_dict(frame, "message")
    if message.get("model") == "<synthetic>" or frame.get("is_api_error_message"):
        return False
    return _is_at(path, _CLAUDE.get(str(frame.get("type")), frozenset()))


def qwen_passes_on(frame: Frame, path: Path) -> bool:
    """Tell for Qwen Code: results of tools, except failed ones, which the decoder remembers as reasons of refusals."""
    content = get_dict(frame, "message").get("content")
    blocks = content if isinstance(content, list) else ()
    failed = any(isinstance(block, dict) and block.get("is_error") for block in blocks)
    return not failed and _is_at(path, _QWEN.get(str(frame.get("type")), frozenset()))


def gemini_passes_on(frame: Frame, path: Path) -> bool:
    """Tell for gemini: results of tools."""
    return _is_at(path, _GEMINI.get(str(frame.get("type")), frozenset()))


def codex_passes_on(frame: Frame, path: Path) -> bool:
    """Tell for codex app-server: the output of commands."""
    item = get_dict(get_dict(frame, "params"), "item")
    is_command = frame.get("method") == "item/completed" and get_str(item, "type") == "commandExecution"
    return is_command and _is_at(path, _COMMAND_OUTPUT)


def exec_passes_on(frame: Frame, path: Path) -> bool:
    """Tell for codex exec: the output of commands."""
    is_command = get_str(get_dict(frame, "item"), "type") == "command_execution"
    return frame.get("type") == "item.completed" and is_command and _is_at(path, _EXEC_OUTPUT)


def acp_passes_on(frame: Frame, path: Path) -> bool:
    """Tell for an ACP agent: the result of a tool that ends with this update. The decoder remembers earlier parts."""
    update = get_dict(get_dict(frame, "params"), "update")
    content = update.get("content")
    told = isinstance(content, list) and any(isinstance(item, dict) for item in content)
    ended = update.get("sessionUpdate") == "tool_call_update" and update.get("status") in ("completed", "failed")
    return told and ended and frame.get("method") == "session/update" and _is_at(path, _ACP_CONTENT)


def _is_at(path: Path, places: _Places) -> bool:
    return path in places or any((*path[:depth], _REST) in places for depth in range(1, len(path) + 1))
