"""A worker behind a daemon, in front of the loopback fake of each API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.e2e.codex import fake_api as responses
from tests.e2e.fake_messages_api import FAKE_KEY, FakeMessagesAPI, Recorded
from tests.e2e.lab import Lab
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.scenarios import Reply, Respond, Scenario

__all__ = ["API_KINDS", "KEY_ENV", "MODELS", "ApiLab", "FakeAnthropicAPI"]

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
        return self.scenario.respond(request.body, n)


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
