"""An HTTP API as the turns ask it: one request, and its answer as events of the Anthropic Messages API."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clisup.worker.events import Event, StreamError
from clisup.worker.failures import Failure, of_connection, of_response

__all__ = ["KEEP_ALIVE_S", "Api", "MissingLibrary", "Request", "checked", "failure_of", "load", "watch"]

KEEP_ALIVE_S = 5.0
"""Seconds between two signs of life while an API sends bytes that are no events: pings, and comments."""

CONNECT_S = 30.0
"""Seconds for a connection to be made. Silence after that is the watchdog's matter: the worker says nothing then."""


class MissingLibrary(Exception):
    """The SDK of an API is not installed. The text says how to get it."""


@dataclass(frozen=True)
class Request:
    """One request for an answer, in the form of the Anthropic Messages API.

    `tools` have `name`, `description` and `input_schema`. With `schema` the answer is to be JSON of it; `by_tool` says that the
    model gives it as a call of `StructuredOutput`. `sampling` has what the caller asked for: `max_tokens`, `temperature`, `top_p`,
    `stop`, `seed`.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    system: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    schema: Mapping[str, Any] | None = None
    by_tool: bool = False
    effort: str | None = None
    thinking: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)


class Api(Protocol):
    """One API, asked over and over. `alive` is called when bytes came."""

    cost_usd: float | None
    """What the latest answer cost by the provider's own words; None where it does not say."""

    def answer(self, request: Request) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer. Raises `StreamError` for one that breaks off, and what the SDK raises."""

    async def models(self) -> list[str]:
        """Return the names of the models that the provider offers."""


def load(package: str) -> Any:
    """Import an SDK. Raises `MissingLibrary`."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingLibrary(
            f"cannot ask this API, because the package {package!r} is not installed beside clisup: "
            "install it with: pip install 'clisup[api]'"
        ) from None


def failure_of(error: Exception, url: str) -> Failure | None:
    """Return why a request failed, by what an SDK raised; None for what is no failure of a request.

    Both SDKs are made by the same generator, so their errors have the same attributes.
    """
    response = getattr(error, "response", None)
    if (status := getattr(error, "status_code", None)) is not None and response is not None:
        return of_response(status, getattr(error, "body", None), response.headers, time.time(), url)
    if isinstance(error, OSError) or type(error).__module__.split(".")[0] in (
        "anthropic",
        "openai",
        "httpx2",
        "httpcore2",
    ):
        return of_connection(_causes(error), url)
    return None


def _causes(error: BaseException) -> str:
    """The innermost words: the SDKs say no more than that the connection failed."""
    words = str(error) or type(error).__name__
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
        words = str(error) or words
    return words


def watch(alive: Callable[[], None]) -> dict[str, Any]:
    """Return the event hooks of an HTTP client that call `alive` for all bytes of an answer's body."""

    stream_type: type[Any] = load("httpx2").AsyncByteStream  # a response takes no body of another type

    class Watched(stream_type):  # type: ignore[misc]
        def __init__(self, body: Any) -> None:
            self._body = body

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._body:
                alive()
                yield data

        async def aclose(self) -> None:
            await self._body.aclose()

    async def hook(response: Any) -> None:
        response.stream = Watched(response.stream)

    return {"response": [hook]}


async def checked(stream: Any, url: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of an SDK's stream as mappings. Raises `StreamError` or `Failure` for what is none."""
    kind = stream.response.headers.get("content-type", "")
    if "text/event-stream" not in kind:
        await stream.close()
        raise Failure(
            f"{url} answered with {kind or 'no content type'} where a stream of events was asked for: look at base_url",
            code="server_error",
            api_error="gateway_content_type",
            status=stream.response.status_code,
        )
    try:
        async for item in stream:
            if not hasattr(item, "to_dict"):
                raise StreamError("the API sent an event that is no JSON object", word="malformed_chunk")
            yield item.to_dict()
    except json.JSONDecodeError as error:
        raise StreamError(f"the API sent an event that is no JSON: {error}", word="malformed_chunk") from None
    finally:
        await stream.close()
