"""Request of `POST /v1/responses`. Pure."""

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
    data_image,
    decode,
    format_schema,
    given_names,
    prompted,
    sampling_of,
    tool_choice,
    tool_definition,
    tool_input,
    unknown_names,
)
from clisup.llm.messages import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.tools import ToolDefinition

__all__ = ["read_responses"]


class _InputText(Struct, tag_field="type", tag="input_text"):
    text: str


class _OutputText(Struct, tag_field="type", tag="output_text"):
    text: str


class _ItemRefusal(Struct, tag_field="type", tag="refusal"):
    refusal: str


class _InputImage(Struct, tag_field="type", tag="input_image"):
    image_url: str | None = None


_Part = _InputText | _OutputText | _ItemRefusal | _InputImage


class _ItemMessage(Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Part]


class _ItemCall(Struct):
    call_id: str
    name: str
    arguments: str = "{}"


class _Output(Struct):
    call_id: str
    output: str | list[_Part]


class _ItemTool(Struct):
    name: str = ""
    description: str | None = None
    parameters: JsonObject | None = None
    type: str = "function"
    tools: list[_ItemTool] = []
    """Functions of a `namespace` (codex)."""


class _ItemFormat(Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: JsonObject | None = None


class _TextConfig(Struct):
    format: _ItemFormat | None = None
    verbosity: str | None = None


class ResponsesBody(Struct):
    """Body of the request, as far as it has an effect, or is refused."""

    model: str
    input: str | list[JsonObject]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: list[_ItemTool] | None = None
    tool_choice: str | JsonObject | None = None
    text: _TextConfig | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    background: bool | None = None
    conversation: str | JsonObject | None = None
    prompt: JsonObject | None = None
    # Without effect. A header of the answer names those that were given.
    reasoning: JsonObject | None = None
    include: list[str] | None = None
    max_tool_calls: int | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: int | None = None
    truncation: str | None = None


_IGNORED = ("reasoning", "include", "max_tool_calls", "top_logprobs", "truncation")


def read_responses(body: bytes, wait_s: float) -> AnswerRequest:
    """Read a body. Tools wait `wait_s` for their results. Raises `GatewayError`."""
    asked = decode(ResponsesBody, body)
    _check(asked)
    choice = tool_choice(asked.tool_choice, asked.parallel_tool_calls, has_tools=bool(asked.tools))
    if asked.previous_response_id and not asked.input:
        raise refused("there is no input", "input")
    items = [{"role": "user", "content": asked.input}] if isinstance(asked.input, str) else asked.input
    system: list[str] = [asked.instructions] if asked.instructions else []
    ignored = [*given_names(asked, _IGNORED), *unknown_names(body, ResponsesBody)]
    messages: Iterable[Message] = tuple(_messages(items, system, ignored))
    told = check_text("\n\n".join(system)) or None
    messages, told = (
        (_new(messages), told) if asked.previous_response_id else prompted(messages, told if items else None)
    )
    return AnswerRequest(
        model=asked.model,
        messages=messages,
        system=told,
        tools=tuple(_tools(asked.tools or (), wait_s, ignored)) if choice.allowed else (),
        sampling=sampling_of(
            max_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            **choice.params,
        ),
        schema=_schema(asked.text.format if asked.text else None),
        stream=bool(asked.stream),
        keep=asked.store is not False,
        previous=asked.previous_response_id,
        ignored=tuple(dict.fromkeys(ignored)),
    )


def _tools(tools: Iterable[_ItemTool], wait_s: float, ignored: list[str]) -> Iterable[ToolDefinition]:
    """Yield the functions, also those of a namespace. Tools that nobody here can run are left out."""
    for tool in tools:
        if tool.type == "function":
            yield tool_definition(tool.name, tool.description, tool.parameters, wait_s)
        elif tool.type == "namespace":
            yield from _tools(tool.tools, wait_s, ignored)
        else:
            ignored.append(f"tools.{tool.type[:40]}")


def _check(asked: ResponsesBody) -> None:
    for name in ("background", "conversation", "prompt"):
        if getattr(asked, name):
            raise refused(f"{name} is not known here", name, kind="unsupported")


def _new(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages after an earlier answer as one. Raises `GatewayError` unless all are the user's."""
    found = list(messages)
    if not found or any(message.role != "user" for message in found):
        raise refused("after previous_response_id come messages of the user, or outputs of functions", "input")
    return (Message(role="user", content=tuple(block for message in found for block in message.content)),)


def _messages(items: Iterable[JsonObject], system: list[str], ignored: list[str]) -> Iterable[Message]:
    """Return the messages. Texts of the system are appended to `system`, and types of items that are left out to `ignored`."""
    for number, item in enumerate(items):
        at, kind = f"input[{number}]", item.get("type", "message")
        if kind == "message":
            message = _convert(item, _ItemMessage, at)
            if message.role in ("system", "developer"):
                system.append(_joined(message.content))
            elif message.role == "assistant":
                yield Message.assistant(_joined(message.content))
            else:
                yield Message(role="user", content=tuple(_blocks(message.content, at)))
        elif kind == "function_call":
            call = _convert(item, _ItemCall, at)
            use = ToolUseBlock(id=call.call_id, name=call.name, input=tool_input(call.arguments, at))
            yield Message(role="assistant", content=(use,))
        elif kind == "function_call_output":
            result = _convert(item, _Output, at)
            told = result.output if isinstance(result.output, str) else tuple(_blocks(result.output, at))
            content = check_text(told) if isinstance(told, str) else told
            yield Message(role="user", content=(ToolResultBlock(tool_use_id=result.call_id, content=content),))
        elif str(kind).endswith(("_call", "_call_output")):
            ignored.append(f"input.{str(kind)[:40]}")  # of a tool that only the vendor runs
        elif kind != "reasoning":  # encrypted thinking of another provider
            raise refused(f"an item of type {str(kind)[:40]!r} is not known here", at, kind="unsupported")


def _convert(item: JsonObject, type_: type[Any], at: str) -> Any:
    try:
        return msgspec.convert(item, type_)
    except msgspec.ValidationError as error:
        raise refused(f"the body is wrong: {error}", at) from None


def _blocks(content: str | list[_Part], at: str) -> Iterable[TextBlock | ImageBlock]:
    for part in [_InputText(content)] if isinstance(content, str) else content:
        if isinstance(part, _InputImage):
            yield data_image(part.image_url or "", at)
        else:
            yield TextBlock(text=check_text(part.refusal if isinstance(part, _ItemRefusal) else part.text))


def _joined(content: str | list[_Part]) -> str:
    if isinstance(content, str):
        return check_text(content)
    texts = (part.text for part in content if isinstance(part, _InputText | _OutputText))
    return check_text("\n".join(texts))


def _schema(format_: _ItemFormat | None) -> JsonObject | None:
    return format_schema(format_.type, format_.schema, "text.format") if format_ is not None else None
