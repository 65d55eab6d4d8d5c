"""The model layer on API backends: the caller's tools, sampling, values and fallbacks, behind a daemon and a fake of each API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio

from clisup.llm import blocking
from clisup.llm.answers import Completion, Finished, FinishReason, ToolInputDelta
from clisup.llm.chat import ChatOptions
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.failures import RateLimited, Unsupported
from clisup.llm.fallbacks import Fallback, RetryPolicy
from clisup.llm.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.models import Client, Model, resolve
from clisup.llm.sessions.caller_tools import PARKED
from clisup.llm.tools import ToolDefinition, tool
from tests.e2e.api.lab import API_KINDS, ApiLab, call, say
from tests.e2e.lab import running
from tests.e2e.scenarios import Respond, in_turn

LIMIT_S = 90.0
LOOK_UP = ToolDefinition("look_up", "Look a word up.", {"type": "object", "properties": {"n": {"type": "integer"}}})
Start = Callable[..., ApiLab]


@pytest.fixture(params=API_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab() -> Iterator[Start]:
    with ExitStack() as stack:

        def start(kind: str, respond: Respond, **options: Any) -> ApiLab:
            return stack.enter_context(running(ApiLab(kind, respond, **options)))

        yield start


def model_of(here: ApiLab) -> Model:
    return resolve(here.backend, socket=here.socket, cwd=str(here.cwd))


def answers(done: Completion) -> Message:
    return Message.user([ToolResultBlock(tool_use_id=c.id, content=f"word {c.input['n']}") for c in done.tool_calls])


def bodies(here: ApiLab) -> list[dict[str, Any]]:
    return [request.body for request in here.api.main_requests]


def test_calls_of_one_answer_go_to_the_caller_and_the_results_back_in_a_chat(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(call(kind, ("look_up", {"n": 1}), ("look_up", {"n": 2})), say(kind, "Done.")))

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            async with model_of(here).chat(ChatOptions(tools=[LOOK_UP])) as chat:
                events = [event async for event in chat.stream("Two words.")]
                assert isinstance(events[-1], Finished)
                done = events[-1].completion
                assert done.finish_reason is FinishReason.TOOL_CALLS
                assert [c.input for c in done.tool_calls] == [{"n": 1}, {"n": 2}]
                assert any(isinstance(event, ToolInputDelta) for event in events)
                assert (done.usage.output_tokens or 0) > 0, "each round tells its own usage"
                last = [event async for event in chat.stream(answers(done))][-1]
                assert isinstance(last, Finished) and last.completion.text == "Done."
                assert last.completion.turn_id != done.turn_id

    trio.run(main)
    sent = json.dumps(bodies(here)[1])
    assert "word 1" in sent and "word 2" in sent and "look_up" in json.dumps(bodies(here)[0]["tools"])


def test_a_mark_of_the_cache_goes_to_the_api_that_has_such_marks(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))
    prompt = [TextBlock(text="A long page.", cache=True), TextBlock(text="What does it say?")]

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            assert (await model_of(here).complete(prompt)).text == "Hi."

    trio.run(main)
    sent = json.dumps(bodies(here)[0].get("messages") or bodies(here)[0]["input"])
    assert sent.count("cache_control") == (1 if kind == "anthropic-api" else 0) and "A long page." in sent


def test_the_caller_owns_the_loop_between_two_calls_beside_a_tool_that_runs_here(lab: Start, kind: str) -> None:
    ran: list[int] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        ran.append(a + b)
        return a + b

    mixed = call(kind, ("look_up", {"n": 1}), ("mcp__clisup__add", {"a": 2, "b": 3}))
    here = lab(kind, in_turn(mixed, say(kind, "Done.")))

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            messages = [Message.user("Go.")]
            done = await model_of(here).complete(messages, tools=[LOOK_UP, add])
            assert [c.name for c in done.tool_calls] == ["look_up"] and ran == [5]
            messages += [*done.messages, answers(done)]
            done = await model_of(here).complete(messages, tools=[LOOK_UP, add])
            assert (done.text, ran, len(PARKED)) == ("Done.", [5], 0)

    trio.run(main)
    sent = json.dumps(bodies(here)[1])
    assert "word 1" in sent and len(bodies(here)) == 2


def test_a_turn_of_a_conversation_goes_on_with_the_results(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(call(kind, ("look_up", {"n": 1})), say(kind, "Done."), say(kind, "Again.")))

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            async with Conversation(model_of(here), tools=[LOOK_UP]) as conversation:
                first = await conversation.send("Go.")
                turn = await conversation.send(
                    Message.user([ToolResultBlock(tool_use_id=first.calls[0].id, content="word 1")])
                )
                assert [c.essence for c in turn.calls] == [("look_up", {"n": 1}, "word 1", False)]
                assert (await conversation.send("And?")).text == "Again."
                assert conversation.chats_opened == 1 and len(conversation.turns) == 2

    trio.run(main)


def test_a_stopped_conversation_of_a_cli_goes_on_with_a_key(lab: Start, kind: str) -> None:
    """The history with its calls and results is the API's own form of them."""
    here = lab(kind, say(kind, "Done."))

    async def main() -> None:
        said = [Message.user("Go.")]
        asked = ToolResultBlock(tool_use_id="toolu_9", content="word 9")
        with trio.fail_after(LIMIT_S):
            said.append(Message.assistant([ToolUseBlock(id="toolu_9", name="look_up", input={"n": 9})]))
            done = await model_of(here).complete([*said, Message.user([asked])], tools=[LOOK_UP])
            assert done.text == "Done."

    trio.run(main)
    sent = json.dumps(bodies(here)[0])
    assert "toolu_9" in sent and "word 9" in sent and "<conversation>" not in sent


def test_the_limit_of_a_subscription_hands_the_conversation_to_the_key(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "By the key."))
    told: list[Fallback] = []

    async def main() -> None:
        demo = resolve("demo", socket=here.socket, cwd=str(here.cwd))
        client = Client(demo, [model_of(here)], retry=RetryPolicy(attempts=1), on_fallback=told.append)
        with trio.fail_after(LIMIT_S):
            async with Conversation(client) as conversation:
                await conversation.send('@tool Read {"f": 1} => inside\nThat was all.')
                turn = await conversation.send("@error rate_limit")
        assert (turn.text, turn.model, turn.outcome) == ("By the key.", here.backend, "completed")
        assert (turn.usage.output_tokens or 0) > 0

    trio.run(main)
    sent = json.dumps(bodies(here)[0])
    assert "inside" in sent and "That was all." in sent
    assert [(step.model, step.to, type(step.error)) for step in told] == [("demo", here.backend, RateLimited)]


def test_sampling_reaches_the_api(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            await model_of(here).complete("Hello.", temperature=0.5, max_tokens=77)

    trio.run(main)
    (body,) = bodies(here)
    assert body["temperature"] == 0.5
    assert 77 in (body.get("max_tokens"), body.get("max_output_tokens"), body.get("max_completion_tokens"))


def test_sampling_that_an_api_has_not_is_unsupported(lab: Start) -> None:
    here = lab("anthropic-api", say("anthropic-api", "Hi."))

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            with pytest.raises(Unsupported):
                await model_of(here).complete("Hello.", seed=1)

    trio.run(main)
    assert bodies(here) == []


def test_typed_questions_and_values_need_no_cli(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, '{"answer": "Rome"}'))
    model = blocking.resolve(here.backend, socket=here.socket, cwd=str(here.cwd))
    assert blocking.Predict("question -> answer", model=model)(question="Which city?").answer == "Rome"
    assert model.structured("Which?", {"type": "object", "properties": {"answer": {"type": "string"}}}).value == {
        "answer": "Rome"
    }
    assert not any(body.get("tools") for body in bodies(here))
