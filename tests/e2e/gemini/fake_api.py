"""A loopback fake of the Gemini API (generateContent, streamGenerateContent, countTokens), scripted by `scenarios`.

    with FakeGeminiAPI("text") as api:
        run_the_cli(env={"GOOGLE_GEMINI_BASE_URL": api.url, "GEMINI_API_KEY": FAKE_KEY})
        assert api.main_requests[0].body["contents"]

Promises: it listens on 127.0.0.1 only; every request is recorded before it is answered; what it says depends on the
scenario and the number of the request alone; leaving the context releases every stalled connection.
"""

from __future__ import annotations

import dataclasses

from tests.e2e.fake_messages_api import FakeMessagesAPI, Recorded
from tests.e2e.gemini.scenarios import SCENARIOS, Answer, Reply, Scenario

FAKE_KEY = "fake-gemini-key"


class FakeGeminiAPI(FakeMessagesAPI):
    """The fake of claude's API with other paths. `main_requests` are those for a streamed answer: the model's turns."""

    def __init__(self, scenario: Scenario | str = "text", port: int = 0) -> None:
        super().__init__(SCENARIOS[scenario] if isinstance(scenario, str) else scenario, port)

    def reply_to(self, request: Recorded) -> Reply:
        """Record the request, number it among its kind, and ask the scenario."""
        request = dataclasses.replace(request, main=":streamGenerateContent" in request.path)
        with self._lock:
            n = sum(earlier.main for earlier in self._requests)
            self._requests.append(request)
        if ":countTokens" in request.path:
            return [Answer(200, {"totalTokens": 10})]
        if request.main:
            return self.scenario.respond(request.body, n)
        return [Answer(200, self.scenario.side)]
