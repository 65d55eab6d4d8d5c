"""Items of codex as events, common to `codex app-server` and `codex exec --json` (0.169.0).

app-server writes names in camelCase, exec in snake_case. `_field` finds a field by its snake_case name in both. Tools have the
names that the model uses, if the item has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from clisup.backends.frames import MalformedError, get_dict, get_int, get_str
from clisup.model.events import BackendStatus, Block, EventBase, PermissionDenied, TaskUpdate, ToolResult, ToolUse

__all__ = [
    "MESSAGES",
    "is_tool",
    "item_id",
    "kind_of",
    "message_blocks",
    "other_events",
    "snake",
    "tool_result",
    "tool_use",
]

Frame = dict[str, Any]
DETAIL_CHARS = 2000
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
    parts = [get_str(item, "text")] if "text" in item else [*_texts(item.get("summary")), *_texts(item.get("content"))]
    return tuple(Block(kind="thinking", text=part) for part in parts if part)


def _texts(value: object) -> list[str]:
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []


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
    changes = item.get("changes")
    listed = [change for change in changes if isinstance(change, dict)] if isinstance(changes, list) else []
    return [_known(path=change.get("path"), kind=_change_kind(change), diff=change.get("diff")) for change in listed]


def _change_kind(change: Frame) -> str | None:
    """Return the kind of a change: `add` in exec, `{"type": "add"}` in app-server."""
    return get_str(change, "kind") or get_str(get_dict(change, "kind"), "type")


def tool_use(item: Frame) -> ToolUse:
    """Return the call in a tool's item."""
    name, arguments = _TOOLS[kind_of(item)](item)
    return ToolUse(tool_use_id=item_id(item), name=name, input=arguments)


def tool_result(item: Frame, name: str | None = None) -> list[EventBase]:
    """Return the end of a call. A refused call gives `permission_denied`, too. A failed command's text begins with its exit code."""
    kind, status = kind_of(item), snake(get_str(item, "status") or "")
    text, blocks = _RESULTS.get(kind, _nothing)(item)
    code = get_int(item, "exit_code") if "exit_code" in item else get_int(item, "exitCode")
    if code:
        text = f"exit code {code}\n{text}"
    result = ToolResult(
        tool_use_id=item_id(item),
        content=text,
        blocks=blocks,
        is_error=status in ("failed", "declined") or bool(code) or item.get("success") is False,
    )
    if status == "declined" or (kind == "mcp_tool_call" and _REFUSED.search(text)):
        name = name or _TOOLS[kind](item)[0]
        return [PermissionDenied(tool_use_id=item_id(item), name=name, reason=text[:DETAIL_CHARS] or None), result]
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
    content = result.get("content")
    blocks = [_mcp_block(part) for part in content if isinstance(part, dict)] if isinstance(content, list) else []
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


def _status(status: str, *fields: str) -> Callable[[Frame], list[EventBase]]:
    def handle(item: Frame) -> list[EventBase]:
        detail = next((text for name in fields if (text := get_str(item, name))), None)
        return [BackendStatus(status=status, detail=detail[:DETAIL_CHARS] if detail else None)]

    return handle


def _todo_list(item: Frame) -> list[EventBase]:
    listed = item.get("items")
    steps = [step for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
    lines = [f"[{'x' if step.get('completed') is True else ' '}] {get_str(step, 'text') or ''}" for step in steps]
    return [BackendStatus(status="todo_list", detail="\n".join(lines)[:DETAIL_CHARS] or None)]


def _sub_agent(item: Frame) -> list[EventBase]:
    task_id = get_str(item, "agentThreadId") or item_id(item)
    state = snake(get_str(item, "kind") or "running")
    return [TaskUpdate(task_id=task_id, kind="subagent", state=state, description=get_str(item, "agentPath"))]


_OTHERS: dict[str, Callable[[Frame], list[EventBase]]] = {
    "user_message": lambda _: [],  # the prompt
    "function_call_output": lambda _: [],
    "error": _status("warning", "message"),
    "context_compaction": _status("compacted"),
    "entered_review_mode": _status("review", "review"),
    "exited_review_mode": _status("review", "review"),
    "hook_prompt": _status("hook_prompt"),
    "todo_list": _todo_list,
    "sub_agent_activity": _sub_agent,
}
