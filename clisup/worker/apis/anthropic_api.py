"""Anthropic Messages API by its own SDK (anthropic 2.12.0). The SDK's events pass through unchanged."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from clisup.worker import JsonObject
from clisup.worker.apis.api import ApiRequest, OptionalFields, client_options, forced_tool, load, stream_items
from clisup.worker.apis.events import Event, StreamError
from clisup.worker.apis.failures import Endpoint
from clisup.worker.apis.schemas import STRUCTURED_TOOL, schema_tool

ANTHROPIC = "https://api.anthropic.com"
MAX_TOKENS = 32_000
"""Default limit of an answer. The API requires a limit; claude 2.1.330 sends the same."""
MAX_MARKS = 3
"""Blocks with `cache_control` in a request. The API allows 4 marks, and the request itself carries one."""


class AnthropicApi:
    """Client of the API."""

    cost_usd: float | None = None

    def __init__(self, endpoint: Endpoint, alive: Callable[[], None]) -> None:
        sdk = load("anthropic")
        self.endpoint = endpoint
        self._client = sdk.AsyncAnthropic(**client_options(sdk, endpoint, alive))
        self._optional = OptionalFields({"cache_control": None})

    def leave_out(self, refusal: str) -> bool:
        """Leave out the optional field that this refusal names."""
        return self._optional.refuse(refusal)

    async def answer(self, request: ApiRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer."""
        fields = self._optional.apply(request_fields(request))
        stream = await self._client.messages.create(stream=True, **fields)
        ended = False
        async with aclosing(stream_items(stream, self.endpoint)) as events:
            async for item in events:
                for event in events_of(item) if item.get("type") == "message" else [item]:
                    ended = event.get("type") == "message_stop"
                    yield event
        if not ended:
            raise StreamError("the API's answer was cut: its stream ended without a message_stop", code="cut_stream")

    async def models(self) -> list[str]:
        """Return the names of the provider's models."""
        return [model.id async for model in self._client.models.list(limit=1000)]


def events_of(message: Mapping[str, Any]) -> list[Event]:
    """Return the events of a whole message: some servers send no stream."""
    head = {**message, "content": [], "stop_reason": None}
    events: list[Event] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(message.get("content") or ()):
        events += [
            {"type": "content_block_start", "index": index, "content_block": dict(block)},
            {"type": "content_block_stop", "index": index},
        ]
    delta = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    return [
        *events,
        {"type": "message_delta", "delta": delta, "usage": message.get("usage") or {}},
        {"type": "message_stop"},
    ]


def request_fields(request: ApiRequest) -> JsonObject:
    """Return the fields of a request. As in claude, the API caches the prompt up to the newest message."""
    sampling = request.sampling
    fields: JsonObject = {
        "model": request.model,
        "max_tokens": sampling.get("max_tokens") or MAX_TOKENS,
        "messages": _messages(request.messages),
        "cache_control": {"type": "ephemeral"},
    }
    if request.system:
        fields["system"] = request.system
    tools = [dict(tool) for tool in request.tools]
    if request.schema is not None and request.by_tool:
        tools.append(schema_tool(request.schema))
        if request.thinking in (None, "off"):  # the API does not let a thinking model be forced to call a tool
            fields["tool_choice"] = {"type": "any"} if request.tools else {"type": "tool", "name": STRUCTURED_TOOL}
    if tools:
        fields["tools"] = tools
        fields |= _tool_choice(request, fields.get("tool_choice"))
    output = _output(request)
    if output:
        fields["output_config"] = output
    if request.thinking is not None:
        fields["thinking"] = _thinking(request.thinking)
    if extra := {name: sampling[name] for name in ("temperature", "top_p") if sampling.get(name) is not None}:
        fields["extra_body"] = extra  # the SDK has no arguments for them: newer models refuse them
    if sampling.get("stop"):
        fields["stop_sequences"] = list(sampling["stop"])
    return fields


def _tool_choice(request: ApiRequest, chosen: Any) -> JsonObject:
    """Return the field about calls. One that is `chosen` already stays."""
    choice: JsonObject | None = chosen
    if choice is None and (name := forced_tool(request)) is not None:
        choice = {"type": "tool", "name": name} if name else {"type": "any"}
    if request.sampling.get("parallel_tool_calls") is False:
        choice = {"type": "auto", **(choice or {}), "disable_parallel_tool_use": True}
    return {} if choice is None else {"tool_choice": choice}


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """Keep the latest cache marks, and leave out thinking that another API has signed."""
    sent: list[JsonObject] = []
    marks = 0
    for message in reversed(messages):
        blocks: list[JsonObject] = []
        for block in reversed(message["content"]):
            kept = dict(block)
            marks += "cache_control" in kept
            if marks > MAX_MARKS:
                kept.pop("cache_control", None)
            if not _is_foreign(kept):
                blocks.append(kept)
        if blocks:
            sent.append({"role": message["role"], "content": blocks[::-1]})
    return sent[::-1]


def _is_foreign(block: Mapping[str, Any]) -> bool:
    """Return whether a block is thinking of an OpenAI API, whose signature is JSON or the name of a field, or unsigned."""
    signature = str(block.get("signature") or "")
    return block["type"] == "thinking" and (not signature or signature.startswith(("{", "reasoning")))


def _output(request: ApiRequest) -> JsonObject:
    output: JsonObject = {"effort": request.effort} if request.effort else {}
    if request.schema is not None and not request.by_tool:
        output["format"] = {"type": "json_schema", "schema": dict(request.schema)}
    return output


def _thinking(option: str) -> Mapping[str, Any]:
    if option == "off":
        return {"type": "disabled"}
    return {"type": "enabled", "budget_tokens": int(option)} if option.isdigit() else {"type": "adaptive"}
