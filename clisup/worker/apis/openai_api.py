"""Chat Completions and Responses, the APIs of OpenAI and compatible servers, by OpenAI's SDK (openai 3.54.0)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from clisup.worker import JsonObject
from clisup.worker.apis.api import ApiRequest, OptionalFields, client_options, forced_tool, load, stream_items
from clisup.worker.apis.chat_stream import ChatStream
from clisup.worker.apis.events import Event
from clisup.worker.apis.failures import Endpoint
from clisup.worker.apis.requests import chat_messages, chat_tools, responses_input, responses_tools
from clisup.worker.apis.responses_stream import ResponsesStream
from clisup.worker.apis.schemas import STRUCTURED_TOOL, is_strict, schema_tool

OPENAI = "https://api.openai.com/v1"
_OPTIONAL = {
    "stream_options": None,
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
    "store": None,
    "include": None,
}
"""Fields that some compatible servers do not know, each with the name that they know it by."""


class _OpenAi:
    """Client that both APIs share."""

    def __init__(self, endpoint: Endpoint, alive: Callable[[], None]) -> None:
        sdk = load("openai")
        self.endpoint = endpoint
        self.cost_usd: float | None = None
        self._client = sdk.AsyncOpenAI(**client_options(sdk, endpoint, alive))
        self._optional = OptionalFields(_OPTIONAL)

    def leave_out(self, refusal: str) -> bool:
        """Leave out or rename the optional field that this refusal names."""
        return self._optional.refuse(refusal)

    async def models(self) -> list[str]:
        """Return the names of the provider's models."""
        return [model.id async for model in self._client.models.list()]


class ChatApi(_OpenAi):
    """Client of Chat Completions."""

    async def answer(self, request: ApiRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer."""
        self.cost_usd = None
        answer = ChatStream(request.model)
        fields = chat_fields(request, own=self.endpoint.url.startswith(OPENAI))
        fields["stream_options"] = {"include_usage": True}
        stream = await self._client.chat.completions.create(stream=True, **self._optional.apply(fields))
        async with aclosing(stream_items(stream, self.endpoint)) as chunks:
            async for chunk in chunks:
                for event in answer.take(chunk):
                    yield event
        self.cost_usd = answer.cost_usd
        for event in answer.end():
            yield event


class ResponsesApi(_OpenAi):
    """Client of Responses. The API stores nothing (`store: false`), because the worker keeps the history."""

    async def answer(self, request: ApiRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer."""
        answer = ResponsesStream(request.model)
        fields = self._optional.apply({"store": False, **responses_fields(request)})
        stream = await self._client.responses.create(stream=True, **fields)
        async with aclosing(stream_items(stream, self.endpoint)) as items:
            async for item in items:
                for event in answer.take(item):
                    yield event
        for event in answer.end():
            yield event


def chat_fields(request: ApiRequest, *, own: bool) -> JsonObject:
    """Return the fields of a request. `own` is for OpenAI itself, whose token limit has another name than elsewhere."""
    sampling = request.sampling
    fields: JsonObject = {"model": request.model, "messages": chat_messages(request.messages, request.system)}
    tools = chat_tools(_tools(request))
    if tools:
        fields["tools"] = tools
        fields |= _tool_params(request, lambda name: {"type": "function", "function": {"name": name}})
    if request.schema is not None and request.by_tool:
        forced = {"type": "function", "function": {"name": STRUCTURED_TOOL}}
        fields["tool_choice"] = "required" if request.tools else forced
    elif request.schema is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": _schema(request.schema)}
    if request.effort:
        fields["reasoning_effort"] = request.effort
    if sampling.get("max_tokens"):
        fields["max_completion_tokens" if own else "max_tokens"] = sampling["max_tokens"]
    if sampling.get("stop"):
        fields["stop"] = list(sampling["stop"])
    given = {name: sampling.get(name) for name in ("temperature", "top_p", "seed")}
    return fields | {name: value for name, value in given.items() if value is not None}


def responses_fields(request: ApiRequest) -> JsonObject:
    """Return the fields of a request. With thinking or effort the API returns its reasoning in encrypted form."""
    sampling = request.sampling
    fields: JsonObject = {"model": request.model, "input": responses_input(request.messages)}
    if request.system:
        fields["instructions"] = request.system
    tools = responses_tools(_tools(request))
    if tools:
        fields["tools"] = tools
        fields |= _tool_params(request, lambda name: {"type": "function", "name": name})
    if request.schema is not None and request.by_tool:
        fields["tool_choice"] = "required" if request.tools else {"type": "function", "name": STRUCTURED_TOOL}
    elif request.schema is not None:
        fields["text"] = {"format": {"type": "json_schema", **_schema(request.schema)}}
    if request.effort or request.thinking not in (None, "off"):
        fields["reasoning"] = {"summary": "auto", **({"effort": request.effort} if request.effort else {})}
        fields["include"] = ["reasoning.encrypted_content"]
    if sampling.get("max_tokens"):
        fields["max_output_tokens"] = sampling["max_tokens"]
    given = {name: sampling.get(name) for name in ("temperature", "top_p")}
    return fields | {name: value for name, value in given.items() if value is not None}


def _tool_params(request: ApiRequest, of_name: Callable[[str], JsonObject]) -> JsonObject:
    """Return the fields about calls: which tool the model has to call, and whether an answer may have several calls."""
    params: JsonObject = {}
    if (choice := forced_tool(request)) is not None:
        params["tool_choice"] = of_name(choice) if choice else "required"
    if (parallel := request.sampling.get("parallel_tool_calls")) is not None:
        params["parallel_tool_calls"] = parallel
    return params


def _schema(schema: Any) -> JsonObject:
    return {"name": "answer", "schema": dict(schema), "strict": is_strict(schema)}


def _tools(request: ApiRequest) -> list[Any]:
    more = [schema_tool(request.schema)] if request.schema is not None and request.by_tool else []
    return [*request.tools, *more]
