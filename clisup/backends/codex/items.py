"""Items of codex as events, common to `codex app-server` and `codex exec --json` (0.169.0), and the streamed messages of app-server.

app-server writes names in camelCase, exec in snake_case. `_field` finds a field by its snake_case name in both. Tools have the
names that the model uses, if the item has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct, field

from clisup.backends.frames import (
    Count,
    Frame,
    MalformedError,
    detail,
    get_dict,
    get_dicts,
    get_int,
    get_str,
    get_strs,
    status,
    status_from,
)
from clisup.model.events import (
    AssistantMessage,
    Block,
    ContentDelta,
    EventBase,
    MessageStart,
    MessageStop,
    PermissionDenied,
    Retracted,
    TaskUpdate,
    ToolResult,
    ToolUse,
)

__all__ = [
    "MESSAGES", "CodexMessages", "is_tool", "item_id", "kind_of", "other_events", "snake", "tool_result",
    "tool_use",
]  # fmt: skip

MESSAGES = frozenset({"agent_message", "reasoning", "plan"})
_REFUSED = re.compile(r"requires approval, but approval policy is|user rejected MCP tool call")
_UPPER = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(name: str) -> str:
    """Return a camelCase name in snake_case: `command_execution` for `commandExecution`."""
    return _UPPER.sub(r"_\1", name).lower()


def kind_of(item: Frame) -> str:
    """Return the item's type in snake_case. Raises MalformedError for an item without a type."""
    kind = get_str(item, "type")
    if kind is None:
        raise MalformedError("an item without a type")
    return snake(kind)


def item_id(item: Frame) -> str:
    found = get_str(item, "id")
    if found is None:
        raise MalformedError("an item without an id")
    return found


def _field(item: Frame, name: str) -> Any:
    head, *rest = name.split("_")
    return item.get(name, item.get(head + "".join(part.capitalize() for part in rest)))


def message_blocks(item: Frame) -> tuple[Block, ...]:
    """Return the blocks of a message, a reasoning or a plan. Reasoning without a summary has none."""
    if kind_of(item) != "reasoning":
        text = get_str(item, "text")
        return (Block(kind="text", text=text),) if text else ()
    parts = [get_str(item, "text")] if "text" in item else [*get_strs(item, "summary"), *get_strs(item, "content")]
    return tuple(Block(kind="thinking", text=part) for part in parts if part)


# Tools


def _command(item: Frame) -> tuple[str, Frame]:
    return "exec_command", _known(command=item.get("command"), cwd=item.get("cwd"))


def _patch(item: Frame) -> tuple[str, Frame]:
    return "apply_patch", {"changes": _changes(item)}


def _mcp(item: Frame) -> tuple[str, Frame]:
    return f"mcp__{get_str(item, 'server')}__{get_str(item, 'tool')}", _arguments(item)


def _collab(item: Frame) -> tuple[str, Frame]:
    told = _known(
        prompt=item.get("prompt"),
        model=item.get("model") or None,
        receivers=_field(item, "receiver_thread_ids") or None,
    )
    return snake(get_str(item, "tool") or "agent"), told


_TOOLS: dict[str, Callable[[Frame], tuple[str, Frame]]] = {
    "command_execution": _command,
    "file_change": _patch,
    "mcp_tool_call": _mcp,
    "dynamic_tool_call": lambda item: (get_str(item, "tool") or "tool", _arguments(item)),
    "collab_agent_tool_call": _collab,
    "collab_tool_call": _collab,
    "web_search": lambda item: ("web_search", _known(query=item.get("query"))),
    "image_view": lambda item: ("view_image", _known(path=item.get("path"))),
    "image_generation": lambda item: ("image_generation", _known(prompt=_field(item, "revised_prompt"))),
    "sleep": lambda item: ("sleep", _known(duration_ms=_field(item, "duration_ms"))),
}


def is_tool(kind: str) -> bool:
    """Tell whether items of this kind are tool calls."""
    return kind in _TOOLS


def _known(**fields: Any) -> Frame:
    return {name: value for name, value in fields.items() if value is not None}


def _arguments(item: Frame) -> Frame:
    given = item.get("arguments")
    return given if isinstance(given, dict) else _known(arguments=given)


def _changes(item: Frame) -> list[Frame]:
    return [
        _known(path=change.get("path"), kind=_change_kind(change), diff=change.get("diff"))
        for change in get_dicts(item, "changes")
    ]


def _change_kind(change: Frame) -> str | None:
    """Return the kind of a change: `add` in exec, `{"type": "add"}` in app-server."""
    return get_str(change, "kind") or get_str(get_dict(change, "kind"), "type")


def tool_use(item: Frame) -> ToolUse:
    """Return the call in a tool's item."""
    name, arguments = _TOOLS[kind_of(item)](item)
    return ToolUse(tool_use_id=item_id(item), name=name, input=arguments)


def tool_result(item: Frame, name: str | None = None) -> list[EventBase]:
    """Return the end of a call. A refused call gives `permission_denied`, too. A failed command's text begins with its exit code."""
    kind, state = kind_of(item), snake(get_str(item, "status") or "")
    text, blocks = _RESULTS.get(kind, _nothing)(item)
    code = get_int(item, "exit_code") if "exit_code" in item else get_int(item, "exitCode")
    if code:
        text = f"exit code {code}\n{text}"
    result = ToolResult(
        tool_use_id=item_id(item),
        content=text,
        blocks=blocks,
        is_error=state in ("failed", "declined") or bool(code) or item.get("success") is False,
    )
    if state == "declined" or (kind == "mcp_tool_call" and _REFUSED.search(text)):
        name = name or _TOOLS[kind](item)[0]
        return [PermissionDenied(tool_use_id=item_id(item), name=name, reason=detail(text)), result]
    return [result]


Result = tuple[str, tuple[Block, ...] | None]


def _nothing(item: Frame) -> Result:
    return "", None


def _mcp_result(item: Frame) -> Result:
    error = get_str(get_dict(item, "error"), "message")
    if error is not None:
        return error, None
    result = get_dict(item, "result")
    structured = _field(result, "structured_content")
    if structured is not None:  # the model gets nothing else of the result
        return json.dumps(structured, ensure_ascii=False, separators=(",", ":")), None
    blocks = [_mcp_block(part) for part in get_dicts(result, "content")]
    text = "\n".join(block.text or "" for block in blocks if block.kind == "text")
    return text, None if all(block.kind == "text" for block in blocks) else tuple(blocks)


def _mcp_block(part: Frame) -> Block:
    kind = get_str(part, "type")
    if kind == "text":
        return Block(kind="text", text=get_str(part, "text") or "")
    if kind == "image":
        return Block(kind="image", media_type=get_str(part, "mimeType"), data=get_str(part, "data"))
    return Block(kind="other", native_kind=kind, text=get_str(part, "text"))


def _agents(item: Frame) -> Result:
    states = _field(item, "agents_states")
    return (json.dumps(states, ensure_ascii=True, sort_keys=True) if isinstance(states, dict) and states else ""), None


_RESULTS: dict[str, Callable[[Frame], Result]] = {
    "command_execution": lambda item: (str(_field(item, "aggregated_output") or ""), None),
    "file_change": lambda item: (
        "\n".join(f"{change.get('kind')} {change.get('path')}" for change in _changes(item)),
        None,
    ),
    "mcp_tool_call": _mcp_result,
    "collab_agent_tool_call": _agents,
    "collab_tool_call": _agents,
}


# Everything else


def other_events(item: Frame) -> list[EventBase] | None:
    """Return the events of an item that is neither a message nor a tool, or None for an unknown kind."""
    handle = _OTHERS.get(kind_of(item))
    return None if handle is None else handle(item)


def _todo_list(item: Frame) -> list[EventBase]:
    steps = get_dicts(item, "items")
    lines = [f"[{'x' if step.get('completed') is True else ' '}] {get_str(step, 'text') or ''}" for step in steps]
    return [status("todo_list", "\n".join(lines))]


def _sub_agent(item: Frame) -> list[EventBase]:
    task_id = get_str(item, "agentThreadId") or item_id(item)
    state = snake(get_str(item, "kind") or "running")
    return [TaskUpdate(task_id=task_id, kind="subagent", state=state, description=get_str(item, "agentPath"))]


_OTHERS: dict[str, Callable[[Frame], list[EventBase]]] = {
    "user_message": lambda _: [],  # the prompt
    "function_call_output": lambda _: [],
    "error": status_from("warning", "message"),
    "context_compaction": status_from("compacted"),
    "entered_review_mode": status_from("review", "review"),
    "exited_review_mode": status_from("review", "review"),
    "hook_prompt": status_from("hook_prompt"),
    "todo_list": _todo_list,
    "sub_agent_activity": _sub_agent,
}


# Streamed messages

Kind = Literal["text", "thinking"]


class _StreamedPart(Struct):
    """Deltas of one part of a message."""

    kind: Kind
    index: Count
    texts: list[str] = field(default_factory=list)


class CodexMessages(Struct):
    """Streamed messages and reasoning of one turn. `last_text` is the last whole answer, which is codex's final text of a turn.

    `item/completed` has the whole text. A message that a broken stream cut has no such frame: the CLI repeats the request without
    the message, so the printed deltas are retracted. A message that was whole before the cut stays: the model gets it again.
    """

    open: dict[str, list[_StreamedPart]] = field(default_factory=dict)
    last_text: str = ""
    model: str | None = None

    def text_delta(self, params: Frame) -> list[EventBase]:
        return self._delta(params, "text", 0)

    def thinking_delta(self, params: Frame) -> list[EventBase]:
        index = get_int(params, "summaryIndex")
        return self._delta(params, "thinking", get_int(params, "contentIndex") or 0 if index is None else index)

    def _delta(self, params: Frame, kind: Kind, index: int) -> list[EventBase]:
        message_id, text = get_str(params, "itemId"), get_str(params, "delta")
        if message_id is None or text is None:
            raise MalformedError("a delta without its item or text")
        if not text:
            return []
        begun = self._begin(message_id)
        self._part(message_id, kind, index).texts.append(text)
        return [*begun, ContentDelta(kind=kind, text=text, index=index, message_id=message_id)]

    def _part(self, message_id: str, kind: Kind, index: int) -> _StreamedPart:
        """Return a part of an open message. A message has few parts, and its last one grows."""
        parts = self.open[message_id]
        for part in reversed(parts):
            if part.index == index and part.kind == kind:
                return part
        parts.append(_StreamedPart(kind, index))
        return parts[-1]

    def _begin(self, message_id: str) -> list[EventBase]:
        """Begin a message with its first text: codex begins items that stay empty (a refusal, encrypted reasoning)."""
        if message_id in self.open:
            return []
        self.open[message_id] = []
        return [MessageStart(message_id=message_id, model=self.model)]

    def completed(self, item: Frame) -> list[EventBase]:
        """Complete a message. A message without a text and without deltas gives no event."""
        message_id, blocks = item_id(item), message_blocks(item)
        if kind_of(item) != "reasoning" and blocks:
            self.last_text = blocks[0].text or ""
        if not blocks and message_id not in self.open:
            return []
        return [*self._begin(message_id), *self._finish(message_id, blocks)]

    def _finish(self, message_id: str, blocks: tuple[Block, ...]) -> list[EventBase]:
        del self.open[message_id]
        return [AssistantMessage(message_id=message_id, blocks=blocks), MessageStop(message_id=message_id)]

    def retract(self, reason: str) -> list[EventBase]:
        """Retract the open messages: nothing will confirm their deltas."""
        events: list[EventBase] = []
        for message_id in self.open:
            events += [Retracted(message_id=message_id, reason=reason), MessageStop(message_id=message_id)]
        self.open.clear()
        return events

    def keep(self) -> list[EventBase]:
        """Complete the open messages of an interrupted turn from their deltas."""
        events: list[EventBase] = []
        for message_id, parts in list(self.open.items()):
            parts.sort(key=lambda part: (part.kind, part.index))
            blocks = tuple(Block(kind=part.kind, text="".join(part.texts)) for part in parts)
            events += self._finish(message_id, blocks)
        return events
