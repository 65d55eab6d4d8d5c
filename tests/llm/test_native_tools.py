"""What is sent to a backend that leaves tools to the caller (`caller_tools`): the params of the wire, by a session of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from harness import Harness

from clisup.client.aio_calls import AsyncCalls
from clisup.client.aio_session import AsyncSession
from clisup.client.events import AssistantMessage, Block, Envelope, ToolUse, TurnCompleted
from clisup.errors import UsageError
from clisup.llm.answers import Completion, Cost, Finished, FinishReason, ToolStarted
from clisup.llm.chat import ChatOptions, Sampling
from clisup.llm.failures import InvalidRequest, Unsupported
from clisup.llm.fallbacks import RetryPolicy
from clisup.llm.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.models import Client, Model, resolve
from clisup.llm.testing import ScriptedModel
from clisup.llm.tools import ToolDefinition
from clisup.model.events import TurnError
from clisup.model.usage import Usage

LOOK_UP = ToolDefinition("look_up", "Look a word up.", {"type": "object"})
NATIVE = {"history": True, "system_prompt": True, "caller_tools": True, "sampling": ["temperature", "stop", "seed"]}
CALL = ToolUseBlock(id="toolu_1", name="look_up", input={"word": "sun"})
CALLED = (
    AssistantMessage(
        message_id="m1",
        blocks=(
            Block(kind="text", text="Let me see."),
            Block(kind="tool_use", tool_use_id="toolu_1", name="look_up", input={"word": "sun"}),
        ),
    ),
    ToolUse(tool_use_id="toolu_1", name="look_up", input={"word": "sun"}),
    TurnCompleted(outcome="completed", stop_reason="tool_use", text="Let me see.", usage=Usage(input_tokens=5, output_tokens=7),
                  cost_usd=0.5, cost_source="estimated"),
)  # fmt: skip
DONE = (TurnCompleted(outcome="completed", stop_reason="end_turn", text="A star."),)
LIMITED = (
    TurnCompleted(outcome="failed", error=TurnError(kind="rate_limit", message="limit reached", retryable=False)),
)


class Turn:
    """One turn of the session of a test's own."""

    id = "t1"

    def __init__(self, events: tuple[Any, ...]) -> None:
        self._events: Iterator[Any] = iter(events)
        self.accepted = SimpleNamespace(turn_id=self.id)
        self.result: Any = None

    async def begin(self) -> None:
        await trio.lowlevel.checkpoint()

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> Envelope:
        await trio.lowlevel.checkpoint()
        event = next(self._events, None)
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, TurnCompleted):
            self.result = event
        return Envelope("s", 1, "", self.id, "backend", event)

    def close(self) -> None:
        pass


class Wire:
    """What was sent: `opened` are the params of session/new, `prompts` those of session/prompt. `turns` are what comes of each prompt."""

    def __init__(self, *turns: tuple[Any, ...], **capabilities: Any) -> None:
        self.opened: list[dict[str, Any]] = []
        self.prompts: list[dict[str, Any]] = []
        self._turns = list(turns)
        self.capabilities = capabilities

    async def open(self, _client: Any, backend: str, cwd: str, **params: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.opened.append({"backend": backend, **params})

    def run(self, _session: Any, prompt: Any, **asked: Any) -> Turn:
        self.prompts.append({"prompt": prompt, **asked})
        return Turn(self._turns.pop(0))


@pytest.fixture
def wire(serve: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Wire, Model]]:
    def make(*turns: tuple[Any, ...], **capabilities: Any) -> tuple[Wire, Model]:
        daemon, made = serve(), Wire(*turns, **capabilities)

        async def known(_client: Any, _backend: str) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            return made.capabilities

        monkeypatch.setattr("clisup.llm.sessions.opening._capabilities", known)
        monkeypatch.setattr(AsyncCalls, "open", lambda *args, **params: made.open(*args, **params))
        monkeypatch.setattr(AsyncSession, "run", lambda *args, **asked: made.run(*args, **asked))
        return made, resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))

    return make


@asynccontextmanager
async def bounded() -> AsyncIterator[None]:
    with trio.fail_after(60):
        yield


def end_of(events: list[Any]) -> Completion:
    assert isinstance(events[-1], Finished)
    return events[-1].completion


RESULT = Message.user([ToolResultBlock(tool_use_id="toolu_1", content=(TextBlock(text="a star", cache=True),))])
RESULT_WIRE = {
    "type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a star"}], "is_error": False,
}  # fmt: skip
TOOLS_WIRE = [{"name": "look_up", "description": "Look a word up.", "input_schema": {"type": "object"}}]


async def test_a_turn_that_ends_with_tool_use_has_the_calls_and_the_next_prompt_the_results(wire: Any) -> None:
    sent, model = wire(CALLED, DONE, **NATIVE)
    async with bounded(), model.chat(ChatOptions(tools=[LOOK_UP])) as chat:
        events = [event async for event in chat.stream("What is the sun?")]
        done = end_of(events)
        (started,) = [event for event in events if isinstance(event, ToolStarted)]
        assert started.ours
        assert (done.finish_reason, done.tool_calls) == (FinishReason.TOOL_CALLS, (CALL,))
        assert done.messages == (Message.assistant([TextBlock(text="Let me see."), CALL]),)
        assert (done.usage.output_tokens, done.cost) == (7, Cost(0.5, "estimated"))
        with pytest.raises(InvalidRequest, match="no result for toolu_1"):
            [_ async for _ in chat.stream("And?")]
        assert end_of([event async for event in chat.stream(RESULT)]).text == "A star."
    assert "tools" not in sent.opened[0], "they are no tools of the session"
    assert [prompt["tools"] for prompt in sent.prompts] == [TOOLS_WIRE] * 2
    assert [prompt["prompt"] for prompt in sent.prompts] == ["What is the sun?", [RESULT_WIRE]]


async def test_results_without_a_chat_go_with_the_history_that_ends_with_the_calls(wire: Any) -> None:
    sent, model = wire(DONE, **NATIVE)
    said = [Message.user("What is the sun?"), Message.assistant([CALL]), RESULT]
    async with bounded():
        assert (await model.complete(said, tools=[LOOK_UP])).text == "A star."
    (opened,) = sent.opened
    assert [message["role"] for message in opened["history"]] == ["user", "assistant"]
    assert opened["history"][1]["content"][0]["name"] == "look_up", "the backend knows it by its own name"
    assert sent.prompts[0]["prompt"] == [RESULT_WIRE]


async def test_results_that_came_before_go_along_with_the_others(wire: Any) -> None:
    sent, model = wire(DONE, **NATIVE)
    other = ToolUseBlock(id="toolu_0", name="add", input={})
    before = Message.user([ToolResultBlock(tool_use_id="toolu_0", content="3")])
    said = [Message.user("Sum?"), Message.assistant([other, CALL]), before, RESULT]
    async with bounded():
        await model.complete(said, tools=[LOOK_UP])
    assert [block["tool_use_id"] for block in sent.prompts[0]["prompt"]] == ["toolu_0", "toolu_1"]
    assert len(sent.opened[0]["history"]) == 2


async def test_the_limit_of_an_account_hands_open_calls_to_the_next_model(wire: Any) -> None:
    sent, model = wire(CALLED, LIMITED, **NATIVE)
    spare = ScriptedModel("It is a star.")
    told: list[Any] = []
    client = Client(model, [spare], retry=RetryPolicy(attempts=1), on_fallback=told.append)
    async with bounded(), client.chat(ChatOptions(tools=[LOOK_UP])) as chat:
        done = end_of([event async for event in chat.stream("What is the sun?")])
        assert done.tool_calls == (CALL,)
        last = end_of([event async for event in chat.stream(RESULT)])
        assert (last.text, str(last.model)) == ("It is a star.", "scripted/model")
    (asked,) = spare.asked
    assert [message.role for message in asked.messages] == ["user", "assistant", "user"]
    assert asked.messages[1].tool_uses == (CALL,) and asked.prompt == RESULT
    assert [(step.model, step.to, step.error.kind) for step in told] == [("demo", "scripted/model", "rate_limit")]
    assert len(sent.prompts) == 2


# -- sampling


async def test_sampling_goes_with_each_prompt(wire: Any) -> None:
    sent, model = wire(DONE, DONE, **NATIVE)
    async with bounded():
        await model.complete("Hi", temperature=0, stop="END", seed=7)
        async with model.chat(ChatOptions(sampling=Sampling(temperature=0.5))) as chat:
            [_ async for _ in chat.stream("Hi")]
    assert [prompt["sampling"] for prompt in sent.prompts] == [
        {"temperature": 0, "stop": ["END"], "seed": 7}, {"temperature": 0.5},
    ]  # fmt: skip


async def test_a_models_sampling_holds_where_a_call_says_nothing_else(wire: Any) -> None:
    sent, model = wire(DONE, **NATIVE)
    warm = resolve("demo", socket=model.settings.socket, sampling=Sampling(temperature=1.0, seed=1))
    async with bounded():
        await warm.complete("Hi", seed=2)
    assert sent.prompts[0]["sampling"] == {"temperature": 1.0, "seed": 2}


async def test_sampling_that_a_backend_lacks_is_refused_before_anything_is_opened(
    wire: Any, serve: Callable[..., Harness]
) -> None:
    sent, model = wire(**NATIVE)
    async with bounded():
        with pytest.raises(Unsupported, match="no top_p: it takes only temperature, stop, seed") as caught:
            await model.complete("Hi", top_p=0.5, temperature=1)
    assert caught.value.data["param"] == "sampling" and sent.opened == []


async def test_a_cli_has_no_sampling(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    async with bounded():
        with pytest.raises(Unsupported, match="no max_tokens: its CLI has no sampling"):
            await resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd)).complete("Hi", max_tokens=5)
    assert daemon.call("session/list")["sessions"] == []


@pytest.mark.parametrize(
    "wrong",
    [{"max_tokens": 0}, {"max_tokens": 1.5}, {"temperature": -1}, {"temperature": "hot"}, {"top_p": 0}, {"top_p": 2},
     {"seed": "x"}, {"stop": [""]}, {"stop": [1]}],
)  # fmt: skip
def test_sampling_that_no_api_takes_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="wrong options of Sampling"):
        Sampling(**wrong)


# -- without a coding agent's tools and system prompt

PLAIN = {"cli_tools": True, "system_prompt": True, "system_prompt_modes": ["append", "replace"], "history": True}
VALUE = (TurnCompleted(outcome="completed", text="[1]"),)


async def test_a_value_is_asked_for_without_the_clis_tools_and_with_a_system_prompt_of_its_own(wire: Any) -> None:
    sent, model = wire(VALUE, VALUE, VALUE, DONE, **PLAIN)
    async with bounded():
        await model.structured("Numbers?", list[int])
        await model.structured("Numbers?", list[int], system="Count.")
        await model.structured("Numbers?", list[int], cli_tools="default")
        await model.complete("Hi")
    plain, own, off, text = sent.opened
    assert (plain["cli_tools"], plain["system_prompt_mode"]) == ("none", "replace") and plain["system_prompt"]
    assert (own["cli_tools"], own["system_prompt_mode"], own["system_prompt"]) == ("none", "replace", "Count.")
    assert not {"cli_tools", "system_prompt_mode", "system_prompt"} & {*off, *text}


async def test_a_backend_that_cannot_leave_its_tools_out_is_asked_as_it_is(wire: Any) -> None:
    sent, model = wire(VALUE, VALUE, system_prompt=True)
    async with bounded():
        await model.structured("Numbers?", list[int], system="Count.")
        await model.structured("Numbers?", list[int])
    assert not {"cli_tools", "system_prompt_mode"} & {*sent.opened[0], *sent.opened[1]}
    assert sent.opened[0]["system_prompt"] == "Count." and "system_prompt" not in sent.opened[1]


# -- thinking


async def test_the_proof_of_thinking_goes_back_with_the_calls_that_it_led_to(wire: Any) -> None:
    thought = AssistantMessage(
        message_id="m1", blocks=(Block(kind="thinking", text="The sun?", signature="proof"), *CALLED[0].blocks)
    )
    sent, model = wire((thought, *CALLED[1:]), DONE, **NATIVE)
    async with bounded():
        done = await model.complete("What is the sun?", tools=[LOOK_UP])
        await model.complete([Message.user("What is the sun?"), *done.messages, RESULT], tools=[LOOK_UP])
    assert sent.opened[1]["history"][1]["content"][0] == {"type": "thinking", "text": "The sun?", "signature": "proof"}
