"""The real claude behind `clisup gateway`, asked by the official SDKs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parents[1] / "doors" / "gateway"))
from gateway_kit import CHAT, GatewayProcess

from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import Body, Reply, Scenario, in_turn, message, say, text, tool, use
from tests.e2e.test_plain_model import LONG

pytestmark = pytest.mark.e2e
Serve = Callable[..., GatewayProcess]
TOOL: Any = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
ADD = "mcp__clisup__add"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a gateway before a lab: `serve(here, allow_subscription=True)`."""
    with ExitStack() as stack:

        def start(here: ClaudeLab, **table: Any) -> GatewayProcess:
            served = GatewayProcess(here.root, here.socket, backends=["claude"], **table)
            stack.callback(served.end)
            served.start()
            return served

        yield start


def scripted(*replies: Any) -> Scenario:
    return Scenario("gateway", in_turn(*replies), recorded=False)


def test_claude_is_a_model_without_tools_of_its_own_and_knows_the_conversation(
    lab: Callable[..., ClaudeLab], serve: Serve
) -> None:
    here = lab(scripted(say("Plum", ".")))
    client = serve(here).anthropic()
    messages: Any = [
        {"role": "user", "content": "The word is plum."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Which word?"},
    ]
    with client.messages.stream(model="claude", max_tokens=99, system=LONG, messages=messages) as stream:
        pieces = list(stream.text_stream)
        whole = stream.get_final_message()
    assert "".join(pieces) == "Plum." and len(pieces) > 1 and whole.usage.output_tokens > 0
    (request,) = here.api.main_requests
    sent = json.dumps(request.body)
    assert "You are a pirate." in sent and "The word is plum." in sent and "Noted." in sent
    assert not request.body.get("tools")


@pytest.mark.parametrize("killed", ["nothing", "gateway", "daemon"])
def test_claudes_calls_wait_for_the_program_and_its_results_reach_the_model(
    lab: Callable[..., ClaudeLab], serve: Serve, killed: str
) -> None:
    def results(body: Body, n: int) -> Reply:
        told = json.dumps(body["messages"][-1])
        return [*message(body, n, text(f"Sums: {'first' in told} {'second' in told}"))]

    here = lab(scripted(use(tool(ADD, "one", {"a": 1}), tool(ADD, "two", {"a": 2})), results))
    served = serve(here)
    ask: Any = {"model": "claude", "max_tokens": 99, "tools": [TOOL]}
    messages: list[Any] = [{"role": "user", "content": "Add."}]
    said = served.anthropic().messages.create(messages=messages, **ask)
    uses = [block for block in said.content if block.type == "tool_use"]
    assert said.stop_reason == "tool_use" and [(use.name, use.input) for use in uses] == [
        ("add", {"a": 1}),
        ("add", {"a": 2}),
    ]
    if killed == "gateway":
        served.kill()
        served.start()
    if killed == "daemon":
        here.kill()
        here.start()
    answers = [
        {"type": "tool_result", "tool_use_id": use.id, "content": word}
        for use, word in zip(uses, ("first", "second"), strict=True)
    ]
    messages += [{"role": "assistant", "content": said.to_dict()["content"]}, {"role": "user", "content": answers}]
    ended = served.anthropic().messages.create(messages=messages, **ask)
    assert ended.content[0].to_dict()["text"] == "Sums: True True" and len(here.api.main_requests) == 2


def test_a_subscription_is_refused_until_the_operator_allows_it(lab: Callable[..., ClaudeLab], serve: Serve) -> None:
    here = lab("text", auth="oauth")
    refused = serve(here)
    status, body, _ = refused.send("POST", CHAT, refused.chat("Hello.", model="claude"))
    assert status == 403 and "allow_subscription" in body["error"]["message"] and not here.api.requests
    allowed = serve(here, allow_subscription=True)
    assert allowed.send("POST", CHAT, allowed.chat("Hello.", model="claude"))[0] == 200
