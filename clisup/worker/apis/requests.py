"""Messages and tools of the Anthropic Messages API in the forms of the two OpenAI APIs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clisup.worker import JsonObject
from clisup.worker.apis.chat_stream import fields_back
from clisup.worker.apis.responses_stream import reasoning_item

Block = Mapping[str, Any]
Item = JsonObject


def chat_messages(messages: Sequence[Mapping[str, Any]], system: str | None) -> list[Item]:
    """Return the messages of a Chat Completions request. Thinking goes back in the field that it came in."""
    sent: list[Item] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        blocks = _blocks(message)
        sent += _chat_answer(blocks) if message["role"] == "assistant" else _chat_prompt(blocks)
    return sent


def responses_input(messages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the input items of a Responses request. The system prompt is not one of them."""
    return [
        item for message in messages for block in _blocks(message) for item in _responses_item(message["role"], block)
    ]


def chat_tools(tools: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the tools of a Chat Completions request."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def responses_tools(tools: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the tools of a Responses request."""
    return [{"type": "function", "strict": False, **_function(tool)} for tool in tools]


def _function(tool: Mapping[str, Any]) -> Item:
    return {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool["input_schema"]}


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _chat_answer(blocks: Sequence[Block]) -> list[Item]:
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    kept = [fields_back(block) for block in blocks if block["type"] == "thinking"]
    opaque = {name: fields for back in kept for name, fields in back.calls.items()}
    calls = [
        {
            **opaque.get(block["id"], {}),
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": _json(block["input"])},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    if not text and not calls:
        return []
    message: Item = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = calls
    for back in kept:
        for field, value in back.message.items():
            message[field] = message[field] + value if isinstance(message.get(field), str) else value
    return [message]


def _chat_prompt(blocks: Sequence[Block]) -> list[Item]:
    """Put each result first, as a message of its own: the API requires results directly after their calls."""
    results = [block for block in blocks if block["type"] == "tool_result"]
    sent: list[Item] = [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _result_text(block)} for block in results
    ]
    shown = [block for block in blocks if block["type"] in ("text", "image")]
    shown += [image for block in results for image in _images(block)]
    if all(block["type"] == "text" for block in shown):
        text = "\n\n".join(block["text"] for block in shown)
        return [*sent, {"role": "user", "content": text}] if text else sent
    parts = [
        {"type": "text", "text": block["text"]}
        if block["type"] == "text"
        else {"type": "image_url", "image_url": {"url": _data_url(block)}}
        for block in shown
    ]
    return [*sent, {"role": "user", "content": parts}]


def _responses_item(role: str, block: Block) -> Iterator[Item]:
    match block["type"]:
        case "text":
            yield {"type": "message", "role": role, "content": block["text"]}
        case "image":
            shown = {"type": "input_image", "image_url": _data_url(block), "detail": "auto"}
            yield {"type": "message", "role": role, "content": [shown]}
        case "thinking":
            if (item := reasoning_item(block)) is not None:
                yield item
        case "tool_use":
            yield {
                "type": "function_call",
                "call_id": block["id"],
                "name": block["name"],
                "arguments": _json(block["input"]),
            }
        case "tool_result":
            yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": _result_text(block)}
            for image in _images(block):
                yield from _responses_item("user", image)


def _result_text(block: Block) -> str:
    """Return a result's text. The APIs have no field for errors, so the text says it."""
    content = block.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part["text"] for part in content if part["type"] == "text")
    return f"Error: {content}" if block.get("is_error") else content


def _images(block: Block) -> list[Block]:
    content = block.get("content")
    return [] if isinstance(content, str) or not content else [part for part in content if part["type"] == "image"]


def _data_url(block: Block) -> str:
    source = block["source"]
    return str(source["url"]) if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
