"""A loopback fake of OpenAI's Responses API, scripted by a scenario of `tests.e2e.codex.scenarios`.

    with FakeResponsesAPI(SCENARIOS["text"]) as api:
        run_the_cli(config={"base_url": f"{api.url}/v1"})

The HTTP server is the one of the fake Messages API: 127.0.0.1 only, every request recorded before it is answered, chunked
server-sent events, stalls that end when the fake is closed. Here are the events of the Responses API and its errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.e2e.fake_messages_api import FakeMessagesAPI, Recorded
from tests.e2e.scenarios import Answer, Body, Event, Reply

__all__ = [
    "FAKE_KEY", "FakeResponsesAPI", "Item", "call", "completed", "custom_call", "error", "events", "failed", "incomplete", "limits",
    "message", "prompts", "reasoning", "refusal", "said", "usage_of",
]  # fmt: skip

FAKE_KEY = "fake-api-key"
Item = Callable[[int], list[Event]]


class FakeResponsesAPI(FakeMessagesAPI):
    """`.main_requests` are those that ask the model; everything else (lists of models, plugins) is a 404."""

    def reply_to(self, request: Recorded) -> Reply:
        main = request.path.split("?")[0].endswith("/responses")
        with self._lock:
            n = sum(earlier.main for earlier in self._requests)
            self._requests.append(replace(request, main=main))
        return self.scenario.respond(request.body, n) if main else error(404, "the fake has no such path")


def usage_of(n: int) -> Body:
    """The usage of request `n`, as the API counts it: cached tokens are a part of the input."""
    return {
        "input_tokens": 1000 + n,
        "input_tokens_details": {"cached_tokens": 300 + n},
        "output_tokens": 40 + n,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 1040 + 2 * n,
    }


def said(n: int, *items: Item, headers: dict[str, str] | None = None) -> Reply:
    """A whole answer of these items."""
    return [*events(n, *items, headers=headers), completed(n)]


def events(n: int, *items: Item, headers: dict[str, str] | None = None) -> list[Event]:
    """An answer of these items, without its end."""
    steps = [Event({"type": "response.created", "response": {"id": f"resp_{n}", "model": "fake-1"}}, headers or {})]
    for index, item in enumerate(items):
        for step in item(10 * n + index):
            placed = {"output_index": index} if "output_index" in step.data else {}
            steps.append(replace(step, data={**step.data, **placed}))
    return steps


def completed(n: int) -> Event:
    """The end of an answer."""
    return Event({"type": "response.completed", "response": {"id": f"resp_{n}", "usage": usage_of(n)}})


def failed(n: int, code: str, words: str) -> Event:
    """The end of an answer that went wrong in the stream."""
    return Event(
        {"type": "response.failed", "response": {"id": f"resp_{n}", "error": {"code": code, "message": words}}}
    )


def incomplete(n: int, reason: str) -> Event:
    """The end of an answer that the API did not let go on; its tokens were used all the same."""
    response = {"id": f"resp_{n}", "incomplete_details": {"reason": reason}, "usage": usage_of(n)}
    return Event({"type": "response.incomplete", "response": response})


def message(*pieces: str) -> Item:
    """Text, in these deltas."""

    def item(n: int) -> list[Event]:
        head: Body = {"type": "message", "role": "assistant", "id": f"msg_{n}"}
        place = {"item_id": f"msg_{n}", "output_index": 0, "content_index": 0}
        whole = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
        return [
            _added({**head, "content": []}),
            *(Event({"type": "response.output_text.delta", **place, "delta": piece}) for piece in pieces),
            _done({**head, "content": whole}),
        ]

    return item


def refusal(words: str) -> Item:
    """A message in which the model refuses."""

    def item(n: int) -> list[Event]:
        head: Body = {"type": "message", "role": "assistant", "id": f"msg_{n}"}
        place = {"item_id": f"msg_{n}", "output_index": 0, "content_index": 0}
        whole = [{"type": "refusal", "refusal": words}]
        return [
            _added({**head, "content": []}),
            Event({"type": "response.refusal.delta", **place, "delta": words}),
            _done({**head, "content": whole}),
        ]

    return item


def reasoning(*pieces: str) -> Item:
    """A summary of the model's reasoning, in these deltas."""

    def item(n: int) -> list[Event]:
        place = {"item_id": f"rs_{n}", "output_index": 0, "summary_index": 0}
        return [
            _added({"type": "reasoning", "id": f"rs_{n}", "summary": []}),
            Event(
                {"type": "response.reasoning_summary_part.added", **place, "part": {"type": "summary_text", "text": ""}}
            ),
            *(Event({"type": "response.reasoning_summary_text.delta", **place, "delta": piece}) for piece in pieces),
            _done(
                {"type": "reasoning", "id": f"rs_{n}", "summary": [{"type": "summary_text", "text": "".join(pieces)}]}
            ),
        ]

    return item


def call(name: str, *, namespace: str | None = None, **arguments: Any) -> Item:
    """One call of a function tool; those of an MCP server have the server as their namespace."""

    def item(n: int) -> list[Event]:
        head = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": name}
        head |= {"namespace": namespace} if namespace else {}
        return [_added({**head, "arguments": ""}), _done({**head, "arguments": json.dumps(arguments)})]

    return item


def custom_call(name: str, text: str) -> Item:
    """One call of a tool that takes free text."""

    def item(n: int) -> list[Event]:
        return [
            _done({"type": "custom_tool_call", "id": f"ct_{n}", "call_id": f"call_{n}", "name": name, "input": text})
        ]

    return item


def error(status: int, words: str, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    """An HTTP error as the API words it."""
    return [Answer(status, {"error": {"message": words, "type": "fake_error", "code": None, **more}}, headers or {})]


def limits(used: float) -> dict[str, str]:
    """The rate-limit headers of an account, `used` per cent of both windows spent; they end in the year 2100."""
    return {
        "x-codex-primary-used-percent": str(used),
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "4102444800",
        "x-codex-secondary-used-percent": str(used / 2),
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": "4102444800",
    }


def prompts(body: Body) -> list[str]:
    """The texts that users wrote, in order, without what the CLI puts before them."""
    texts = [
        part.get("text", "")
        for entry in body.get("input", [])
        if entry.get("type") == "message" and entry.get("role") == "user"
        for part in entry.get("content", [])
    ]
    return [text for text in texts if not text.lstrip().startswith(("<", "# AGENTS.md"))]


def _added(item: Body) -> Event:
    return Event({"type": "response.output_item.added", "output_index": 0, "item": item})


def _done(item: Body) -> Event:
    return Event({"type": "response.output_item.done", "output_index": 0, "item": item})
