"""Loopback fake of the three APIs, with replies scripted as data: `answer(say("Hi."))`, `answer(call("add", a=1))`, `refuse(401)`.

The HTTP server and its steps (pause, stall, cut) are those of the fake Messages API; the events of each dialect come from the fakes of
the CLIs that speak it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.e2e import scenarios as anthropic
from tests.e2e.codex import fake_api as responses
from tests.e2e.fake_messages_api import FakeMessagesAPI, Recorded
from tests.e2e.qwen import scenarios as chat
from tests.e2e.scenarios import Answer, Body, Cut, Event, Pause, Reply, Scenario, Stall, Step

__all__ = [
    "APIS", "Answer", "Cut", "FakeApi", "Pause", "Raw", "Reply", "Script", "Stall", "answer", "call", "partial", "raw_answer",
    "refuse", "say", "steps", "stream_error", "think",
]  # fmt: skip

APIS = ("anthropic", "chat", "responses")
MODEL = "fake-model"
_PATHS = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}

Item = tuple[str, Any]
Script = Callable[[str, int], Reply]


@dataclass(frozen=True)
class Raw(Event):
    """Bytes of an event stream as they are."""

    data: Body
    text: str = ""

    def encode(self) -> bytes:
        return self.text.encode()


def say(*pieces: str) -> Item:
    return "text", pieces


def think(*pieces: str, signature: str = "c2ln", field: str = "reasoning_content") -> Item:
    return "think", (pieces, signature, field)


def call(name: str, raw: str | None = None, /, **arguments: Any) -> Item:
    """A call of a tool; `raw` in the place of arguments goes out as it is."""
    return "call", (name, json.dumps(arguments) if raw is None else raw)


def answer(*items: Item, stop: str | None = None, usage: bool = True, cost: float | None = None, model: str = MODEL,
           headers: dict[str, str] | None = None) -> Script:  # fmt: skip
    """A whole answer. `stop` is the dialect's own word."""

    def script(api: str, n: int) -> Reply:
        made = _MAKERS[api](n, items, stop, model)
        if not usage:
            made = [_without_usage(event) for event in made]
        if cost is not None:
            made = [_with_cost(event, cost) for event in made]
        return [replace(made[0], headers=headers or {}), *made[1:]]

    return script


def partial(item: Item, *ending: Step) -> Script:
    """The begin of an answer, up to the last delta of its one item, and then the ending."""

    def script(api: str, n: int) -> Reply:
        last = {"anthropic": 3, "chat": 3, "responses": 2}[api]
        return [*_MAKERS[api](n, (item,), None, MODEL)[:-last], *ending]

    return script


def steps(*given: Step) -> Script:
    """These steps in every dialect."""
    return lambda api, n: list(given)


def raw_answer(text: str) -> Script:
    return steps(Raw({"type": "raw"}, {}, text))


def refuse(status: int, message: str = "it went wrong", *, kind: str = "", code: str | None = None,
           headers: dict[str, str] | None = None) -> Script:  # fmt: skip
    """An HTTP error as the API words it."""

    def script(api: str, n: int) -> Reply:
        error: Body = {"type": kind or "fake_error", "message": message}
        if api == "anthropic":
            return [Answer(status, {"type": "error", "error": error}, headers or {})]
        return [Answer(status, {"error": {**error, "code": code, "param": None}}, headers or {})]

    return script


def stream_error(kind: str, message: str) -> Script:
    """An error that is an event of the stream, before any content."""

    def script(api: str, n: int) -> Reply:
        error = {"type": kind, "message": message}
        if api == "anthropic":
            return [Event({"type": "error", "error": error})]
        if api == "chat":
            return [chat.Chunk({"error": {**error, "code": kind}})]
        return [responses.failed(n, kind, message)]

    return script


class FakeApi(FakeMessagesAPI):
    """Context manager with `.url` (the base URL), `.bodies` of the requests for answers, and `.requests` of all."""

    def __init__(self, api: str, *scripts: Script, port: int = 0) -> None:
        super().__init__(Scenario("fake", lambda body, n: []), port)
        self.api, self._scripts, self._first = api, scripts, 0

    def play(self, *scripts: Script) -> None:
        """From now on these are the replies; the last one is repeated."""
        with self._lock:
            self._scripts, self._first = scripts, sum(earlier.main for earlier in self._requests)

    @property
    def url(self) -> str:
        return super().url + ("" if self.api == "anthropic" else "/v1")

    @property
    def bodies(self) -> list[Body]:
        return [request.body for request in self.main_requests]

    def reply_to(self, request: Recorded) -> Reply:
        path = request.path.split("?")[0]
        main = path == _PATHS[self.api] and request.method == "POST"
        with self._lock:
            n = sum(earlier.main for earlier in self._requests)
            self._requests.append(replace(request, main=main))
        if main:
            return self._scripts[min(n - self._first, len(self._scripts) - 1)](self.api, n)
        if path == "/v1/models":
            models = [
                {"id": name, "type": "model", "object": "model", "created": 1, "owned_by": "x"} for name in ("b", "a")
            ]
            return [Answer(200, {"object": "list", "data": models, "has_more": False})]
        return [Answer(404, "<html>not here</html>", {"content-type": "text/html"})]


def _anthropic(n: int, items: tuple[Item, ...], stop: str | None, model: str) -> list[Event]:
    blocks = []
    for index, (kind, value) in enumerate(items):
        if kind == "text":
            blocks.append(anthropic.text(*value))
        elif kind == "think":
            blocks.append(anthropic.thinking(*value[0], signature=value[1]))
        else:
            blocks.append(anthropic.tool(value[0], f"{n}_{index}", value[1]))
    return anthropic.message({"model": model}, n, *blocks, stop=stop)


def _chat(n: int, items: tuple[Item, ...], stop: str | None, model: str) -> list[Event]:
    deltas: list[Body] = []
    for index, (kind, value) in enumerate(items):
        if kind == "text":
            deltas += chat.text(*value)
        elif kind == "think":
            deltas += [{value[2]: piece} for piece in value[0]]
        else:
            deltas += chat.tool(value[0], f"{n}_{index}", value[1], index=index)
    finish = stop or ("tool_calls" if any(kind == "call" for kind, _ in items) else "stop")
    made = chat.message(n, *deltas, finish=finish)
    return [replace(event, data={**event.data, "model": model}) if event.data else event for event in made]


def _responses(n: int, items: tuple[Item, ...], stop: str | None, model: str) -> list[Event]:
    made: list[responses.Item] = []
    for kind, value in items:
        if kind == "text":
            made.append(responses.message(*value))
        elif kind == "think":
            made.append(_reasoning(*value[0], encrypted=value[1]))
        else:
            made.append(_function_call(*value))
    begun = responses.events(n, *made)
    created = {**begun[0].data["response"], "model": model}
    end = responses.incomplete(n, stop) if stop else responses.said(n)[-1]
    ended = Event({**end.data, "response": {**end.data["response"], "model": model}})
    return [
        _indexed(event, items)
        for event in (Event({**begun[0].data, "response": created}), *begun[1:], ended)  # type: ignore[list-item]
    ]


def _indexed(event: Event, items: tuple[Item, ...]) -> Event:
    """The fake of codex numbers all items 0; the real API counts them."""
    place = event.data.pop("place", None)
    return replace(event, data={**event.data, "output_index": place % 10}) if place is not None else event


def _function_call(name: str, raw: str) -> responses.Item:
    def item(n: int) -> list[Event]:
        head = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": name}
        pieces = [raw[at : at + 24] for at in range(0, len(raw), 24)]
        return [
            Event({"type": "response.output_item.added", "item": {**head, "arguments": ""}, "place": n}),
            *(Event({"type": "response.function_call_arguments.delta", "item_id": f"fc_{n}", "delta": piece, "place": n})
              for piece in pieces),
            Event({"type": "response.output_item.done", "item": {**head, "arguments": raw}, "place": n}),
        ]  # fmt: skip

    return item


def _reasoning(*pieces: str, encrypted: str) -> responses.Item:
    def item(n: int) -> list[Event]:
        *begun, done = responses.reasoning(*pieces)(n)
        return [*begun, Event({**done.data, "item": {**done.data["item"], "encrypted_content": encrypted}})]

    return item


def _without_usage(event: Event) -> Event:
    data = {name: value for name, value in event.data.items() if name != "usage"}
    for name in ("message", "response"):
        if name in data:
            data[name] = {field: value for field, value in data[name].items() if field != "usage"}
    return replace(event, data=data)


def _with_cost(event: Event, cost: float) -> Event:
    usage = event.data.get("usage")
    return replace(event, data={**event.data, "usage": {**usage, "cost": cost}}) if usage else event


_MAKERS: dict[str, Callable[[int, tuple[Item, ...], str | None, str], list[Event]]] = {
    "anthropic": _anthropic, "chat": _chat, "responses": _responses,
}  # fmt: skip
