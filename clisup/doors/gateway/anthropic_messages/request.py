"""Request of `POST /v1/messages`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from clisup.client.raw import JsonObject
from clisup.doors.gateway.failures import refused
from clisup.doors.gateway.requests import (
    AnswerRequest,
    check_text,
    conversation,
    decode,
    given_names,
    image,
    object_schema,
    sampling_of,
    short_name,
    tool_choice,
    tool_definition,
    unknown_names,
)
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.tools import ToolDefinition

__all__ = ["read_messages"]


class _MessagesText(Struct, tag_field="type", tag="text"):
    text: str
    cache_control: JsonObject | None = None


class _Base64(Struct, tag_field="type", tag="base64"):
    media_type: str
    data: str


class _MessagesImage(Struct, tag_field="type", tag="image"):
    source: _Base64
    cache_control: JsonObject | None = None


class _Use(Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: JsonObject
    cache_control: JsonObject | None = None


class _Result(Struct, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[JsonObject] | None = None
    is_error: bool = False
    cache_control: JsonObject | None = None


class _Thinking(Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""


_Part = _MessagesText | _MessagesImage | _Use | _Result | _Thinking
_PARTS: dict[str, type[Any]] = {
    "text": _MessagesText, "image": _MessagesImage, "tool_use": _Use, "tool_result": _Result, "thinking": _Thinking,
}  # fmt: skip
_LEFT_OUT = ("redacted_thinking", "server_tool_use", "tool_reference", "container_upload", "compaction")
_RESULTS = "_tool_result"  # ends the types of results of the vendor's own tools


class _MessagesMessage(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[JsonObject]


class _MessagesTool(Struct):
    name: str
    description: str | None = None
    input_schema: JsonObject | None = None
    type: str | None = None


class _MessagesFormat(Struct):
    schema: JsonObject
    type: Literal["json_schema"] = "json_schema"


class _OutputConfig(Struct):
    format: _MessagesFormat | None = None
    effort: str | None = None


class MessagesBody(Struct):
    """Body of the request, as far as it has an effect, or is refused."""

    model: str
    messages: list[_MessagesMessage]
    max_tokens: int
    system: str | list[_MessagesText] | None = None
    stream: bool | None = None
    tools: list[_MessagesTool] | None = None
    tool_choice: JsonObject | None = None
    output_config: _OutputConfig | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    container: Any = None
    # Without effect. A header of the answer names those that were given.
    thinking: JsonObject | None = None
    top_k: int | None = None
    cache_control: JsonObject | None = None


_IGNORED = ("thinking", "top_k", "cache_control")


def read_messages(body: bytes, wait_s: float) -> AnswerRequest:
    """Read a body. Tools wait `wait_s` for their results. Raises `GatewayError`."""
    asked = decode(MessagesBody, body)
    if asked.container:
        raise refused("containers are not known here", "container", kind="unsupported")
    parallel = None if asked.tool_choice is None else asked.tool_choice.get("disable_parallel_tool_use")
    choice = tool_choice(
        _chosen(asked.tool_choice), not parallel if isinstance(parallel, bool) else None, has_tools=bool(asked.tools)
    )
    system = [_joined(asked.system), *(_system(message) for message in asked.messages if message.role == "system")]
    config = asked.output_config
    ignored = [*given_names(asked, _IGNORED), *unknown_names(body, MessagesBody)]
    ignored += ["output_config.effort"] if config and config.effort else []
    last = len(asked.messages) - 1
    messages = conversation(
        Message(
            role="user" if message.role == "user" else "assistant",
            content=tuple(_blocks(message, number, ignored, strict=number == last)),
        )
        for number, message in enumerate(asked.messages)
        if message.role != "system"
    )
    return AnswerRequest(
        model=asked.model,
        messages=messages,
        system="\n\n".join(text for text in system if text.strip()) or None,
        tools=tuple(_tools(asked.tools or (), wait_s, ignored)) if choice.allowed else (),
        sampling=sampling_of(
            max_tokens=asked.max_tokens, temperature=asked.temperature, top_p=asked.top_p,
            stop=tuple(asked.stop_sequences or ()) or None, **choice.params,
        ),
        schema=object_schema(config.format.schema, "output_config.format") if config and config.format else None,
        stream=bool(asked.stream),
        ignored=tuple(dict.fromkeys(ignored)),
        names={short: tool.name for tool in asked.tools or () if (short := short_name(tool.name)) != tool.name},
    )  # fmt: skip


def _chosen(choice: JsonObject | None) -> JsonObject | None:
    """Return the choice of a tool with the name that the backend knows."""
    name = (choice or {}).get("name")
    return {**choice, "name": short_name(name)} if choice and isinstance(name, str) else choice


def _tools(tools: Iterable[_MessagesTool], wait_s: float, ignored: list[str]) -> Iterable[ToolDefinition]:
    """Yield the tools of the program. The vendor's own tools run nowhere here, and are left out."""
    for tool in tools:
        if tool.type in (None, "custom"):
            yield tool_definition(short_name(tool.name), tool.description, tool.input_schema, wait_s)
        else:
            ignored.append(f"tools.{tool.type[:40]}")


def _parts(content: str | Iterable[JsonObject] | None, at: str, ignored: list[str], *, strict: bool) -> Iterable[_Part]:
    """Yield the blocks of a content. What no backend can use is left out, unless it is new (`strict`). Raises `GatewayError`."""
    for given in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        kind = str(given.get("type"))
        if (type_ := _PARTS.get(kind)) is not None:
            try:
                yield msgspec.convert(given, type_)
            except msgspec.ValidationError as error:
                raise refused(f"the body is wrong: {error}", at) from None
        elif strict and kind not in _LEFT_OUT and not kind.endswith(_RESULTS):
            raise refused(f"a block of type {kind[:40]!r} is not known here", at, kind="unsupported")
        else:
            ignored.append(f"content.{kind[:40]}")


def _blocks(message: _MessagesMessage, number: int, ignored: list[str], *, strict: bool) -> Iterable[Block]:
    at = f"messages[{number}].content"
    for part in _parts(message.content, at, ignored, strict=strict):
        cache = bool(getattr(part, "cache_control", None))
        match part:
            case _MessagesText():
                yield TextBlock(text=check_text(part.text), cache=cache)
            case _MessagesImage():
                yield _image(part, at).model_copy(update={"cache": cache})
            case _Use():
                yield ToolUseBlock(id=part.id, name=short_name(part.name), input=part.input, cache=cache)
            case _Result():
                yield ToolResultBlock(
                    tool_use_id=part.tool_use_id,
                    content=_content(part, at, ignored),
                    is_error=part.is_error,
                    cache=cache,
                )
            case _Thinking() if part.signature:  # without one, no API takes it back
                yield ThinkingBlock(text=part.thinking, signature=part.signature)


def _content(result: _Result, at: str, ignored: list[str]) -> str | tuple[TextBlock | ImageBlock, ...]:
    if result.content is None or isinstance(result.content, str):
        return check_text(result.content or "")
    parts = _parts(result.content, at, ignored, strict=False)
    return tuple(
        TextBlock(text=check_text(part.text)) if isinstance(part, _MessagesText) else _image(part, at)
        for part in parts
        if isinstance(part, _MessagesText | _MessagesImage)
    )


def _image(part: _MessagesImage, at: str) -> ImageBlock:
    return image(part.source.media_type, part.source.data, at)


def _joined(content: str | Iterable[_MessagesText] | None) -> str:
    if content is None or isinstance(content, str):
        return check_text(content or "")
    return check_text("\n\n".join(part.text for part in content))


def _system(message: _MessagesMessage) -> str:
    if isinstance(message.content, str):
        return check_text(message.content)
    parts = _parts(message.content, "messages", [], strict=False)
    return _joined(part for part in parts if isinstance(part, _MessagesText))
