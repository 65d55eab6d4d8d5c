"""A worker behind a daemon, in front of the loopback fake of each API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.e2e import scenarios as claude
from tests.e2e.codex import fake_api as responses
from tests.e2e.fake_messages_api import FAKE_KEY, FakeMessagesAPI, Recorded
from tests.e2e.lab import Lab
from tests.e2e.qwen import scenarios as qwen
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.scenarios import Answer, Body, Cut, Reply, Respond, Scenario, Stall, Step, bland_reply

__all__ = [
    "API_KINDS", "KEY_ENV", "MODELS", "ApiLab", "FakeAnthropicAPI", "call", "cut", "fail", "partial", "say", "stalled",
]  # fmt: skip

API_KINDS = ("anthropic-api", "chat-api", "responses-api")
"""Backends of the lab: one for each API."""

KEY_ENV = "LAB_API_KEY"
MODELS = {"anthropic-api": "claude-opus-5-5", "chat-api": "fake-coder", "responses-api": "gpt-5.2"}


class FakeAnthropicAPI(FakeMessagesAPI):
    """The fake Messages API, where each request for an answer is one of the conversation."""

    def reply_to(self, request: Recorded) -> Reply:
        """Record the request, number it, and ask the scenario."""
        main = request.path.split("?")[0] == "/v1/messages"
        with self._lock:
            n = sum(earlier.main for earlier in self._requests)
            self._requests.append(replace(request, main=main))
        return self.scenario.respond(request.body, n) if main else bland_reply(request.path, request.body)


def say(kind: str, *pieces: str) -> Respond:
    """Answer with this text, in the words of the kind's API."""
    if kind == "responses-api":
        return lambda body, n: responses.said(n, responses.message(*pieces))
    return {"anthropic-api": claude.say, "chat-api": qwen.say}[kind](*pieces)


def call(kind: str, *calls: tuple[str, dict[str, Any]]) -> Respond:
    """Call these tools in one answer. The ids are the API's own."""
    if kind == "responses-api":
        return lambda body, n: responses.said(n, *[responses.call(name, **given) for name, given in calls])
    if kind == "anthropic-api":
        return lambda body, n: claude.use(
            *(claude.tool(name, f"{n}{at}", given) for at, (name, given) in enumerate(calls))
        )(body, n)
    return lambda body, n: qwen.use(
        *(delta for at, (name, given) in enumerate(calls) for delta in qwen.tool(name, f"{n}{at}", given, at))
    )(body, n)


def partial(kind: str, text: str, *ending: Step) -> Respond:
    """Say a text without its end, then the ending."""

    def respond(body: Body, n: int) -> Reply:
        steps = say(kind, text)(body, n)
        spoken = next(at for at, step in enumerate(steps) if text in json.dumps(getattr(step, "data", "")))
        return [*steps[: spoken + 1], *ending]

    return respond


def stalled(kind: str, text: str) -> Respond:
    """Say a text, and nothing more until the fake is released."""
    return partial(kind, text, Stall())


def cut(kind: str, text: str) -> Respond:
    """Say a text, and drop the connection."""
    return partial(kind, text, Cut())


def fail(kind: str, status: int, word: str, words: str, headers: dict[str, str] | None = None) -> Respond:
    """Answer with an error of the kind's API."""
    if kind == "anthropic-api":
        return claude.fail(status, word, words, headers)
    return lambda body, n: [Answer(status, {"error": {"message": words, "type": word, "code": word}}, headers or {})]


class ApiLab(Lab):
    """The worker of one API in front of a fake that plays `respond`."""

    def __init__(self, kind: str, respond: Respond, *, config: str = "", key: str | None = FAKE_KEY) -> None:
        super().__init__()
        self.backend = kind
        fakes: Mapping[str, type[FakeMessagesAPI]] = {
            "anthropic-api": FakeAnthropicAPI, "chat-api": FakeChatAPI, "responses-api": responses.FakeResponsesAPI,
        }  # fmt: skip
        self.api = fakes[kind](Scenario(kind, respond)).__enter__()
        self.daemon_env = {} if key is None else {KEY_ENV: key}
        url = f"{self.api.url}/v1" if kind == "responses-api" else self.api.url
        lines = [f"[backends.{kind}]", f'base_url = "{url}"', f'key_env = "{KEY_ENV}"', f'model = "{MODELS[kind]}"']
        if kind != "anthropic-api":
            lines += ['kind = "openai-api"', f'dialect = "{kind.removesuffix("-api")}"']
        (self.root / "config.toml").write_text("\n".join([*lines, config]))

    def close_fakes(self) -> None:
        """End the fake."""
        self.api.close()
