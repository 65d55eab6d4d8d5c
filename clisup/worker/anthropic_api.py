"""The Anthropic Messages API by its own SDK (anthropic 2.12.0), whose events go on as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from clisup.worker.api import CONNECT_S, Request, checked, load, watch
from clisup.worker.events import Event, StreamError
from clisup.worker.schemas import STRUCTURED_TOOL, tool_of

__all__ = ["MAX_TOKENS", "AnthropicApi", "request_fields"]

MAX_TOKENS = 32_000
"""Tokens of one answer where nobody says another number. The API wants one; claude 2.1.330 sends the same."""


class AnthropicApi:
    """The API at `base_url`, or Anthropic's own."""

    cost_usd: float | None = None

    def __init__(self, base_url: str | None, key: str | None, alive: Callable[[], None]) -> None:
        sdk = load("anthropic")
        self.url = base_url or "https://api.anthropic.com"
        self._client = sdk.AsyncAnthropic(
            api_key=key or "", base_url=self.url, max_retries=0, timeout=sdk.Timeout(None, connect=CONNECT_S),
            http_client=sdk.DefaultAsyncHttpxClient(event_hooks=watch(alive)),
        )  # fmt: skip

    async def answer(self, request: Request) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer."""
        stream = await self._client.messages.create(stream=True, **request_fields(request))
        ended = False
        async with aclosing(checked(stream, self.url)) as events:
            async for event in events:
                ended = event.get("type") == "message_stop"
                yield event
        if not ended:
            raise StreamError("the API's answer was cut: its stream ended without a message_stop", word="cut_stream")

    async def models(self) -> list[str]:
        """Return the names of the models that the provider offers."""
        return [model.id async for model in self._client.models.list(limit=1000)]


def request_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request. The newest message ends a part that the API keeps in its cache, as with claude."""
    sampling = request.sampling
    fields: dict[str, Any] = {
        "model": request.model,
        "max_tokens": sampling.get("max_tokens") or MAX_TOKENS,
        "messages": [dict(message) for message in request.messages],
        "cache_control": {"type": "ephemeral"},
    }
    if request.system:
        fields["system"] = request.system
    tools = [dict(tool) for tool in request.tools]
    if request.schema is not None and request.by_tool:
        tools.append(tool_of(request.schema))
        fields["tool_choice"] = {"type": "any"} if request.tools else {"type": "tool", "name": STRUCTURED_TOOL}
    if tools:
        fields["tools"] = tools
    output = _output(request)
    if output:
        fields["output_config"] = output
    if request.thinking is not None:
        fields["thinking"] = _thinking(request.thinking)
    fields |= {name: sampling[name] for name in ("temperature", "top_p") if name in sampling}
    if sampling.get("stop"):
        fields["stop_sequences"] = list(sampling["stop"])
    return fields


def _output(request: Request) -> dict[str, Any]:
    output: dict[str, Any] = {"effort": request.effort} if request.effort else {}
    if request.schema is not None and not request.by_tool:
        output["format"] = {"type": "json_schema", "schema": dict(request.schema)}
    return output


def _thinking(said: str) -> Mapping[str, Any]:
    """`adaptive`, `off`, or a number of tokens."""
    if said == "off":
        return {"type": "disabled"}
    return {"type": "enabled", "budget_tokens": int(said)} if said.isdigit() else {"type": "adaptive"}
