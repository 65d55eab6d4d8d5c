"""A loopback fake of an OpenAI-compatible Chat Completions API, scripted by a scenario of `tests.e2e.qwen.scenarios`.

The server, the numbering of requests and the steps (pause, stall, cut) are those of the fake Messages API; the difference is what
counts as a request of the conversation, and that a reply to a request without `stream` is a whole completion.
"""

from __future__ import annotations

import dataclasses

from tests.e2e.fake_messages_api import FAKE_KEY, FakeMessagesAPI, Recorded
from tests.e2e.qwen.scenarios import SCENARIOS, error, whole
from tests.e2e.scenarios import Reply, Scenario

__all__ = ["FAKE_KEY", "FakeChatAPI"]


class FakeChatAPI(FakeMessagesAPI):
    """A context manager: `.url` (with `/v1`), `.requests`, `.main_requests`, `.release`.

    `main_requests` are all requests for a streamed completion: the CLI streams nothing else than the conversation.
    """

    def __init__(self, scenario: Scenario | str, port: int = 0) -> None:
        super().__init__(SCENARIOS[scenario] if isinstance(scenario, str) else scenario, port)

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    def reply_to(self, request: Recorded) -> Reply:
        """Record the request, number it, and ask the scenario: the number counts main requests, from 0."""
        is_chat = request.path.split("?")[0].endswith("/chat/completions")
        request = dataclasses.replace(request, main=is_chat and bool(request.body.get("stream")))
        with self._lock:
            n = sum(earlier.main for earlier in self._requests)
            self._requests.append(request)
        if request.main:
            return self.scenario.respond(request.body, n)
        if is_chat:
            return whole(self.scenario.respond(request.body, n))
        return error(404, "not_found", "the fake has no such path")
