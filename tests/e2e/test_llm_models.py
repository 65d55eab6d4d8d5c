"""The model layer's calls with the real claude and codex: answers, values, and a fallback from one to the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from clisup.llm.answers import Completion, Finished, MessageDone, StreamEvent, TextDelta, ToolEnded, ToolStarted
from clisup.llm.failures import Authentication
from clisup.llm.fallbacks import Fallback
from clisup.llm.models import Client, Model, resolve
from tests.e2e.codex.fake_api import message as codex_message
from tests.e2e.codex.fake_api import said
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.provider import codex_binary
from tests.e2e.codex.scenarios import MODEL
from tests.e2e.codex.scenarios import Scenario as CodexScenario
from tests.e2e.lab import ClaudeLab, Lab, marked, poll, running
from tests.e2e.scenarios import Body, Reply, Scenario, bash, error, fail, in_turn, say, text, tool, use

pytestmark = pytest.mark.e2e
BOUND_S = 300.0


class City(BaseModel):
    """It has a default, which codex's API does not take in a schema."""

    name: str
    people: int = 0


@pytest.fixture
def codex() -> Iterator[Callable[..., CodexLab]]:
    if not codex_binary().exists():
        pytest.fail("the pinned codex CLI is not there: run `make e2e-install`")
    with ExitStack() as stack:
        yield lambda scenario: stack.enter_context(running(CodexLab(scenario)))


def model(here: Lab, **options: Any) -> Model:
    name = f"codex/{MODEL}" if here.backend == "codex" else here.backend
    return resolve(name, socket=here.socket, cwd=str(here.cwd), **options)


async def all_of(model: Model | Client, *prompts: str) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    async with model.chat() as chat:
        for prompt in prompts:
            events += [event async for event in chat.stream(prompt)]
    return events


def ends(events: list[StreamEvent]) -> list[Completion]:
    return [event.completion for event in events if isinstance(event, Finished)]


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_a_turn_of_claude_reads_as_messages(lab: Callable[..., ClaudeLab], mode: str) -> None:
    here = lab(Scenario("tools", in_turn(use(text("I ", "look."), bash("one", "echo found")), say("It is ", "there."))))
    with trio.fail_after(BOUND_S):
        events = await all_of(model(here, permission_mode="bypassPermissions", mode=mode), "Look.")
    kinds = [type(event) for event in events if isinstance(event, ToolStarted | ToolEnded | MessageDone | Finished)]
    assert kinds == [ToolStarted, MessageDone, ToolEnded, MessageDone, Finished]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["I ", "look.", "It is ", "there."]
    (done,) = ends(events)
    assert [[block.type for block in one.content] for one in done.messages] == [
        ["text", "tool_use"],
        ["tool_result"],
        ["text"],
    ]
    assert (done.text, done.messages[1].content[0].content) == ("It is there.", "found")  # type: ignore[union-attr]
    assert done.usage.output_tokens and done.cost is not None
    with here.client() as client:
        assert client.call("session/list", state="closed")["sessions"] == []


async def test_a_value_comes_by_each_clis_own_way(
    lab: Callable[..., ClaudeLab], codex: Callable[..., CodexLab]
) -> None:
    value = {"name": "Ada", "people": 3}
    claudes = lab(Scenario("value", in_turn(use(tool("StructuredOutput", "so", value)), say("Done."))))
    codexs = codex(CodexScenario("value", lambda body, n: said(n, codex_message(json.dumps(value)))))
    with trio.fail_after(BOUND_S):
        for here in (claudes, codexs):
            found = await model(here).structured("Which city?", City)
            assert (found.value, found.repairs) == (City(name="Ada", people=3), 0)
            assert found.completion.structured == value
    assert "JSON Schema" not in json.dumps(codexs.api.requests[-1].body["input"])


async def test_codex_goes_on_where_claude_is_logged_out(
    lab: Callable[..., ClaudeLab], codex: Callable[..., CodexLab]
) -> None:
    def first_only(body: Body, n: int) -> Reply:
        if "And now?" in json.dumps(body["messages"]):
            return error(401, "authentication_error", "invalid x-api-key")
        return say("Hello Ada.")(body, n)

    claudes = lab(Scenario("logged_out", first_only))
    codexs = codex(CodexScenario("goes_on", lambda body, n: said(n, codex_message("You are Ada."))))
    told: list[Fallback] = []
    client = Client(model(claudes), [model(codexs)], on_fallback=told.append)
    with trio.fail_after(BOUND_S):
        events = await all_of(client, "My name is Ada.", "And now?", "And again?")
    assert [(end.model.backend, end.text) for end in ends(events)] == [
        ("claude", "Hello Ada."),
        ("codex", "You are Ada."),
        ("codex", "You are Ada."),
    ]
    assert [(one.model, type(one.error)) for one in told] == [("claude", Authentication)]
    first = json.dumps(codexs.api.requests[0].body["input"])
    assert all(words in first for words in ("My name is Ada.", "Hello Ada.", "And now?"))


async def test_a_stream_of_claude_that_is_left_leaves_no_process(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(Scenario("sleeps", in_turn(use(bash("one", "sleep 4242")), say("Awake."))))
    async with model(here, permission_mode="bypassPermissions").chat() as chat:
        with trio.fail_after(BOUND_S):
            async for event in chat.stream("Sleep."):
                if isinstance(event, ToolStarted):
                    break
        assert chat.session_id is not None
        session = chat.session_id
        await trio.to_thread.run_sync(lambda: poll(lambda: not marked(session), "the end of its processes"))


async def test_an_error_of_the_api_is_one_of_the_layer(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(Scenario("denied", fail(401, "authentication_error", "invalid x-api-key")))
    with trio.fail_after(BOUND_S), pytest.raises(Authentication) as failed:
        await model(here).complete("Hi")
    assert (failed.value.side_effects, failed.value.retryable) == (False, False)
