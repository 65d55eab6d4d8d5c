"""Request of `POST /v1/chat/completions`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

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

__all__ = ["read_chat"]


class _ChatText(Struct, tag_field="type", tag="text"):
    text: str


class _Url(Struct):
    url: str


class _ChatImage(Struct, tag_field="type", tag="image_url"):
    image_url: _Url


class _ChatRefusal(Struct, tag_field="type", tag="refusal"):
    refusal: str


class _System(Struct, tag_field="role", tag="system"):
    content: str | list[_ChatText]


class _Developer(Struct, tag_field="role", tag="developer"):
    content: str | list[_ChatText]


class _User(Struct, tag_field="role", tag="user"):
    content: str | list[_ChatText | _ChatImage]


class _Function(Struct):
    name: str
    arguments: str = "{}"


class _ChatCall(Struct):
    id: str
    function: _Function
    type: Literal["function"] = "function"


class _Assistant(Struct, tag_field="role", tag="assistant"):
    content: str | list[_ChatText | _ChatRefusal] | None = None
    tool_calls: list[_ChatCall] | None = None


class _ChatTool(Struct, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str | list[_ChatText]


class _Defined(Struct):
    name: str
    description: str | None = None
    parameters: JsonObject | None = None


class _ToolSpec(Struct):
    function: _Defined
    type: Literal["function"] = "function"


class _Schema(Struct):
    schema: JsonObject | None = None


class _ChatFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class ChatBody(Struct):
    """Body of the request, as far as it has an effect, or is refused."""

    model: str
    messages: list[_System | _Developer | _User | _Assistant | _ChatTool]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_ToolSpec] | None = None
    tool_choice: str | JsonObject | None = None
    response_format: _ChatFormat | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int | None = None
    logprobs: bool | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None
    audio: JsonObject | None = None
    # Without effect. A header of the answer names those that were given.
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: JsonObject | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    parallel_tool_calls: bool | None = None
    prediction: JsonObject | None = None
    web_search_options: JsonObject | None = None


_IGNORED = (
    "frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort", "verbosity", "prediction", "web_search_options",
)  # fmt: skip


def read_chat(body: bytes, wait_s: float) -> AnswerRequest:
    """Read a body. Tools wait `wait_s` for their results. Raises `GatewayError`."""
    asked = decode(ChatBody, body)
    _check(asked)
    choice = tool_choice(asked.tool_choice, asked.parallel_tool_calls, has_tools=bool(asked.tools))
    told = [_joined(message.content) for message in asked.messages if isinstance(message, _System | _Developer)]
    messages, system = prompted(_messages(asked.messages), "\n\n".join(text for text in told if text.strip()) or None)
    return AnswerRequest(
        model=asked.model,
        messages=messages,
        system=system,
        tools=_tools(asked.tools or (), wait_s) if choice.allowed else (),
        sampling=sampling_of(
            max_tokens=asked.max_completion_tokens or asked.max_tokens, temperature=asked.temperature, top_p=asked.top_p,
            stop=tuple(asked.stop) if isinstance(asked.stop, list) else asked.stop, seed=asked.seed,
            **choice.params,
        ),
        schema=_schema(asked.response_format),
        stream=bool(asked.stream),
        tell_usage=not asked.stream or bool(asked.stream_options and asked.stream_options.include_usage),
        ignored=(*given_names(asked, _IGNORED), *unknown_names(body, ChatBody)),
    )  # fmt: skip


def _check(asked: ChatBody) -> None:
    if asked.n not in (None, 1):
        raise refused("only one answer is made for a request: n is 1", "n", kind="unsupported")
    if asked.logprobs:
        raise refused("no backend reports logprobs", "logprobs", kind="unsupported")
    if asked.functions:
        raise refused("give tools in place of functions", "functions", kind="unsupported")
    if asked.audio or asked.modalities not in (None, ["text"]):
        raise refused("answers are text", "modalities", kind="unsupported")


def _messages(messages: Iterable[Any]) -> Iterable[Message]:
    for number, message in enumerate(messages):
        at = f"messages[{number}]"
        if isinstance(message, _User):
            parts = [_ChatText(message.content)] if isinstance(message.content, str) else message.content
            yield Message(role="user", content=tuple(_part(part, f"{at}.content") for part in parts))
        elif isinstance(message, _Assistant):
            said = (TextBlock(text=_joined(message.content)),) if message.content else ()
            calls = tuple(
                ToolUseBlock(
                    id=call.id, name=call.function.name, input=tool_input(call.function.arguments, f"{at}.tool_calls")
                )
                for call in message.tool_calls or ()
            )
            yield Message(role="assistant", content=(*said, *calls))
        elif isinstance(message, _ChatTool):
            result = ToolResultBlock(tool_use_id=message.tool_call_id, content=_joined(message.content))
            yield Message(role="user", content=(result,))


def _part(part: _ChatText | _ChatImage, at: str) -> TextBlock | ImageBlock:
    return TextBlock(text=check_text(part.text)) if isinstance(part, _ChatText) else data_image(part.image_url.url, at)


def _joined(content: str | Iterable[_ChatText | _ChatRefusal] | None) -> str:
    if content is None or isinstance(content, str):
        return check_text(content or "")
    return check_text("\n".join(part.text if isinstance(part, _ChatText) else part.refusal for part in content))


def _tools(tools: Iterable[_ToolSpec], wait_s: float) -> tuple[ToolDefinition, ...]:
    given = (tool.function for tool in tools)
    return tuple(tool_definition(tool.name, tool.description, tool.parameters, wait_s) for tool in given)


def _schema(format_: _ChatFormat | None) -> JsonObject | None:
    if format_ is None:
        return None
    return format_schema(format_.type, format_.json_schema.schema if format_.json_schema else None, "response_format")
