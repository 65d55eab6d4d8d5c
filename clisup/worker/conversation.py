"""Messages of a conversation in the form that an API accepts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from clisup.worker import JsonObject

Message = JsonObject
_LOST = "No result: the process ended while the tool ran, and the outcome of the call is unknown."


def messages_of(entries: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of a transcript's entries."""
    messages: list[Message] = []
    for entry in entries:
        role, message = entry.get("type"), entry.get("message")
        if role in ("user", "assistant") and isinstance(message, Mapping):
            add_message(messages, role, message.get("content"))
    return messages


def add_message(messages: list[Message], role: str, content: Any) -> None:
    """Append a message, or extend the last one if it has the same role. Empty content changes nothing."""
    blocks = _blocks(content)
    if not blocks:
        return
    if messages and messages[-1]["role"] == role:
        messages[-1] = {"role": role, "content": [*messages[-1]["content"], *blocks]}
    else:
        messages.append({"role": role, "content": blocks})


def request_messages(messages: Sequence[Message], api_name: Callable[[str], str]) -> list[Message]:
    """Return the messages of a request: with a result for each call, results first, and the API's tool names.

    A call has no result if its process was killed. The model then reads that the outcome is unknown.
    """
    sent: list[Message] = []
    calls: list[str] = []
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant":
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            content = [
                {**block, "name": api_name(block["name"])} if block["type"] == "tool_use" else block
                for block in content
            ]
        else:
            content, calls = _with_results(calls, content), []
        sent.append({"role": message["role"], "content": content})
    if calls:
        sent.append({"role": "user", "content": _with_results(calls, [])})
    return sent


def _with_results(calls: Sequence[str], content: Sequence[Message]) -> list[Message]:
    results = [block for block in content if block["type"] == "tool_result"]
    given = {block.get("tool_use_id") for block in results}
    lost = [
        {"type": "tool_result", "tool_use_id": call_id, "content": _LOST, "is_error": True}
        for call_id in calls
        if call_id not in given
    ]
    return [*results, *lost, *(block for block in content if block["type"] != "tool_result")]


def _blocks(content: Any) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [block for block in content or () if isinstance(block, dict) and "type" in block and not _is_empty(block)]


def _is_empty(block: Message) -> bool:
    return block["type"] == "text" and not str(block.get("text", "")).strip()
