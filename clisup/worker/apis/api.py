"""HTTP API as the turns see it: one request, and its answer as events of the Anthropic Messages API."""

from __future__ import annotations

import codecs
import importlib
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from clisup.worker import JsonObject
from clisup.worker.apis.events import Event, StreamError
from clisup.worker.apis.failures import Endpoint, RequestFailure, of_connection, of_response, of_stream

CONNECT_S = 30.0
"""Timeout of a connection attempt in seconds. A silent API has no timeout here: the daemon's watchdog handles silence."""

MAX_BODY = 16 * 1024 * 1024
"""Bytes of an answer that is no event stream, such as an error or a list of models, and of one line of an event stream."""

_SDK_PACKAGES = ("anthropic", "openai", "httpx2", "httpcore2")


class MissingLibrary(Exception):
    """Missing SDK of an API. The text says how to install it."""


@dataclass(frozen=True)
class ApiRequest:
    """Request for one answer, in the form of the Anthropic Messages API.

    `tools` have `name`, `description` and `input_schema`. With `schema` the answer is JSON of that schema; with `by_tool`
    the model gives the answer as a call of `StructuredOutput`. `sampling` may have `max_tokens`, `temperature`, `top_p`,
    `stop` and `seed`.
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


def forced_tool(request: ApiRequest) -> str | None:
    """Return the name of the tool that the model has to call, "" for any of them, or None."""
    choice = request.sampling.get("tool_choice")
    return None if choice is None else str(choice).removeprefix("tool:") if str(choice).startswith("tool:") else ""


class Api(Protocol):
    """Client of one API."""

    endpoint: Endpoint
    cost_usd: float | None
    """Cost of the latest answer as the provider reports it, or None."""

    def answer(self, request: ApiRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of one answer. Raises `StreamError`, `RequestFailure` and the SDK's errors."""

    async def models(self) -> list[str]:
        """Return the names of the provider's models."""

    def leave_out(self, refusal: str) -> bool:
        """Leave out or rename the optional field that this refusal names, from now on. Return False if it names none."""


_UNKNOWN_FIELD = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|extra (?:inputs|fields)|extra_forbidden|not permitted|not allowed|"
    r"instead|no such (?:field|param)",
    re.IGNORECASE,
)


class OptionalFields:
    """Fields that the worker adds by itself, and that some providers refuse: each is left out or renamed after a refusal.

    `names` has each field with its other name, or None.
    """

    def __init__(self, names: Mapping[str, str | None]) -> None:
        self._names = dict(names)
        self._refused: set[str] = set()

    def refuse(self, refusal: str) -> bool:
        """Note the field that a refusal names as unknown. Return False for any other refusal, and for a field that was noted before.

        A refused value is no refused field: "max_tokens is too large".
        """
        if not _UNKNOWN_FIELD.search(refusal):
            return False
        for name in self._names:
            if name not in self._refused and re.search(rf"\b{name}\b", refusal):
                self._refused.add(name)
                return True
        return False

    def apply(self, fields: JsonObject) -> JsonObject:
        """Return the fields of a request without the refused ones."""
        sent: JsonObject = {}
        for name, value in fields.items():
            other = self._names[name] if name in self._refused else name
            if other is not None:
                sent[other] = value
        return sent


def load(package: str) -> Any:
    """Import an SDK. Raises `MissingLibrary`."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingLibrary(
            f"the Python package {package!r} is not installed. Install it with: pip install 'clisup[api]'"
        ) from None


def failure_of(error: Exception, endpoint: Endpoint) -> RequestFailure | None:
    """Return the failure behind an exception of a request; None for any other exception.

    Both SDKs come from the same generator, so their errors have the same attributes.
    """
    if isinstance(error, RequestFailure):
        return error
    if isinstance(error, StreamError):
        return of_stream(error, endpoint, time.time())
    if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in _SDK_PACKAGES:
        return None
    response, body = getattr(error, "response", None), getattr(error, "body", None)
    if response is not None and response.status_code >= 300:
        return of_response(response.status_code, body, response.headers, time.time(), endpoint)
    if body is not None:  # the SDK raises for an error event of a stream
        inner = body.get("error", body) if isinstance(body, Mapping) else body
        return of_stream(StreamError.of(inner), endpoint, time.time())
    return of_connection(_cause(error), endpoint)


def client_options(sdk: Any, endpoint: Endpoint, alive: Callable[[], None]) -> JsonObject:
    """Return the arguments of an SDK's client. The client calls `alive` for all bytes of an answer's body."""
    address = urlsplit(endpoint.url)
    return {
        "api_key": endpoint.key or "none",  # the SDKs refuse an empty key; a local server ignores it
        "base_url": urlunsplit(address._replace(query="")),
        "default_query": dict(parse_qsl(address.query)),  # Azure's api-version
        "max_retries": 0,
        "timeout": sdk.Timeout(None, connect=CONNECT_S),
        "http_client": sdk.DefaultAsyncHttpxClient(
            # The SDKs' default follows redirects, and takes the prompt to the address that the answer names.
            follow_redirects=False,
            # A packed answer has no bound: 200 KB become 200 MB in one piece.
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [_watch(alive, endpoint)]},
        ),
    }


async def stream_items(stream: Any, endpoint: Endpoint) -> AsyncGenerator[JsonObject, None]:
    """Yield the items of an SDK's stream as mappings. Raises `StreamError` and `RequestFailure`."""
    content_type = stream.response.headers.get("content-type", "")
    try:
        if "json" in content_type.lower() and (whole := _whole(await stream.response.aread())) is not None:
            yield whole
            return
        if "text/event-stream" not in content_type.lower():
            raise RequestFailure(
                f"{endpoint.url} answered with {content_type or 'no content type'} instead of an event stream; "
                "check the backend's base_url",
                code="server_error",
                api_error="gateway_content_type",
                status=stream.response.status_code,
            )
        async for item in stream:
            if not hasattr(item, "to_dict"):
                raise StreamError("the API sent an event that is no JSON object", code="malformed_chunk")
            yield item.to_dict()
    except json.JSONDecodeError as error:
        raise StreamError(f"the API sent an event that is no JSON: {error}", code="malformed_chunk") from None
    finally:
        await stream.close()


def _whole(body: bytes) -> JsonObject | None:
    """Return an answer that came in one piece, as some servers send it, or None for another body.

    Raises `StreamError` for an error in the body: some servers send errors with the status 200.
    """
    try:
        value = json.loads(body)
    except ValueError:
        return None
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, dict):
        return None
    if value.get("error"):
        raise StreamError.of(value["error"])
    is_answer = "choices" in value or value.get("type") == "message" or value.get("object") == "response"
    return value if is_answer else None


def _cause(error: BaseException) -> str:
    """Return the innermost message: the SDKs themselves only say that the connection failed."""
    words = str(error) or type(error).__name__
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
        words = str(error) or words
    return words


def _watch(alive: Callable[[], None], endpoint: Endpoint) -> Any:
    """Return a hook for each answer: its body calls `alive`, and is bounded. Reading too much of it raises `RequestFailure`."""
    stream_type: type[Any] = load("httpx2").AsyncByteStream  # a response accepts no body of another type

    class WatchedBody(stream_type):  # type: ignore[misc]
        def __init__(self, response: Any) -> None:
            self._body, self._headers, self._status = response.stream, response.headers, response.status_code

        async def __aiter__(self) -> AsyncIterator[bytes]:
            packed = self._headers.get("content-encoding", "identity")
            if packed not in ("identity", ""):
                raise self._refused(f"answered with {packed[:40]!r} as its encoding, which was not asked for")
            by_line, held = "text/event-stream" in self._headers.get("content-type", "").lower(), 0
            mark = codecs.BOM_UTF8  # it would hide the first event
            async for piece in self._body:
                alive()
                data, mark = piece.removeprefix(mark), b""
                ended = data.rfind(b"\n") if by_line else -1
                held = held + len(data) if ended < 0 else len(data) - ended - 1
                if held > MAX_BODY:
                    raise self._refused(f"sent a {'line' if by_line else 'body'} of more than {MAX_BODY} bytes")
                yield data

        async def aclose(self) -> None:
            await self._body.aclose()

        def _refused(self, why: str) -> RequestFailure:
            return RequestFailure(
                f"{endpoint.url} {why}; check the backend's base_url", code="server_error", status=self._status
            )

    async def hook(response: Any) -> None:
        response.stream = WatchedBody(response)

    return hook
