"""The two APIs of OpenAI and of those who speak like it, by its own SDK (openai 3.54.0)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from clisup.worker.api import CONNECT_S, Request, checked, load, watch
from clisup.worker.chat_stream import ChatStream
from clisup.worker.events import Event
from clisup.worker.requests import chat_messages, chat_tools, responses_input, responses_tools
from clisup.worker.responses_stream import ResponsesStream
from clisup.worker.schemas import STRUCTURED_TOOL, is_strict, tool_of

__all__ = ["ChatApi", "ResponsesApi", "chat_fields", "responses_fields"]

OPENAI = "https://api.openai.com/v1"


class _OpenAi:
    """The client of both."""

    def __init__(self, base_url: str | None, key: str | None, alive: Callable[[], None]) -> None:
        sdk = load("openai")
        self.url = base_url or OPENAI
        self.cost_usd: float | None = None
        self._client = sdk.AsyncOpenAI(
            api_key=key or "none", base_url=self.url, max_retries=0, timeout=sdk.Timeout(None, connect=CONNECT_S),
            http_client=sdk.DefaultAsyncHttpxClient(event_hooks=watch(alive)),
        )  # fmt: skip

    async def models(self) -> list[str]:
        """Return the names of the models that the provider offers."""
        return [model.id async for model in self._client.models.list()]


class ChatApi(_OpenAi):
    """Chat Completions."""

    async def answer(self, request: Request) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer."""
        self.cost_usd = None
        answer = ChatStream(request.model)
        fields = chat_fields(request, own=self.url.startswith(OPENAI))
        stream = await self._client.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **fields
        )
        async with aclosing(checked(stream, self.url)) as chunks:
            async for chunk in chunks:
                for event in answer.take(chunk):
                    yield event
        self.cost_usd = answer.cost_usd
        for event in answer.end():
            yield event


class ResponsesApi(_OpenAi):
    """Responses. The API keeps nothing of them (`store: false`): the history is the worker's."""

    async def answer(self, request: Request) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer."""
        answer = ResponsesStream(request.model)
        stream = await self._client.responses.create(stream=True, store=False, **responses_fields(request))
        async with aclosing(checked(stream, self.url)) as items:
            async for item in items:
                for event in answer.take(item):
                    yield event
        for event in answer.end():
            yield event


def chat_fields(request: Request, *, own: bool) -> dict[str, Any]:
    """Return the fields of a request; `own` where the API is OpenAI's, which calls the limit by another name than the others."""
    sampling = request.sampling
    fields: dict[str, Any] = {"model": request.model, "messages": chat_messages(request.messages, request.system)}
    tools = chat_tools(_tools(request))
    if tools:
        fields["tools"] = tools
    if request.schema is not None and request.by_tool:
        forced = {"type": "function", "function": {"name": STRUCTURED_TOOL}}
        fields["tool_choice"] = "required" if request.tools else forced
    elif request.schema is not None:
        schema = {"name": "answer", "schema": dict(request.schema), "strict": is_strict(request.schema)}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.effort:
        fields["reasoning_effort"] = request.effort
    if sampling.get("max_tokens"):
        fields["max_completion_tokens" if own else "max_tokens"] = sampling["max_tokens"]
    if sampling.get("stop"):
        fields["stop"] = list(sampling["stop"])
    return fields | {name: sampling[name] for name in ("temperature", "top_p", "seed") if name in sampling}


def responses_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request. What the model thought comes back encrypted where thinking or effort is asked for."""
    sampling = request.sampling
    fields: dict[str, Any] = {"model": request.model, "input": responses_input(request.messages)}
    if request.system:
        fields["instructions"] = request.system
    tools = responses_tools(_tools(request))
    if tools:
        fields["tools"] = tools
    if request.schema is not None and request.by_tool:
        fields["tool_choice"] = "required" if request.tools else {"type": "function", "name": STRUCTURED_TOOL}
    elif request.schema is not None:
        schema = {"name": "answer", "schema": dict(request.schema), "strict": is_strict(request.schema)}
        fields["text"] = {"format": {"type": "json_schema", **schema}}
    if request.effort or request.thinking not in (None, "off"):
        fields["reasoning"] = {"summary": "auto", **({"effort": request.effort} if request.effort else {})}
        fields["include"] = ["reasoning.encrypted_content"]
    if sampling.get("max_tokens"):
        fields["max_output_tokens"] = sampling["max_tokens"]
    return fields | {name: sampling[name] for name in ("temperature", "top_p") if name in sampling}


def _tools(request: Request) -> list[Any]:
    more = [tool_of(request.schema)] if request.schema is not None and request.by_tool else []
    return [*request.tools, *more]
