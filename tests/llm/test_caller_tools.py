"""Tools that the caller runs: the stream ends at their calls, and the next prompt brings the results. Real daemons, real bridges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel
from harness import Harness

from clisup.errors import UsageError
from clisup.llm import blocking
from clisup.llm.answers import (
    Completion,
    Finished,
    FinishReason,
    MessageDone,
    StreamEvent,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from clisup.llm.budget import Budget
from clisup.llm.chat import Chat, ChatOptions
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.failures import InvalidRequest, Overloaded
from clisup.llm.fallbacks import RetryPolicy
from clisup.llm.messages import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.models import Client, Model, resolve
from clisup.llm.serving import to_wire
from clisup.llm.sessions.caller_tools import PARKED, ParkedChats
from clisup.llm.signatures import Predict
from clisup.llm.testing import Reply, ScriptedModel, ToolCall
from clisup.llm.tools import ToolDefinition, tool

BOUND_S = 60.0
LOOK_UP = ToolDefinition("look_up", "Look a word up.", {"type": "object"})
OPENAI = {"type": "function", "function": {"name": "ask", "description": "Ask.", "parameters": {"type": "object"}}}
PARALLEL = '@parallel\n@mcp look_up {"word": "a"}\n@mcp ask {"n": 2}\n@end\nThat was all.'


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def demo(daemon: Harness, **options: Any) -> Model:
    return resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd), **options)


@asynccontextmanager
async def chatting(daemon: Harness, *tools: Any, **session: Any) -> AsyncIterator[Chat]:
    with trio.fail_after(BOUND_S):
        async with demo(daemon).chat(ChatOptions(tools=tools or (LOOK_UP, OPENAI), session=session)) as chat:
            yield chat


async def events_of(chat: Chat, prompt: Any) -> list[StreamEvent]:
    return [event async for event in chat.stream(prompt)]


def end_of(events: Sequence[StreamEvent]) -> Completion:
    assert isinstance(events[-1], Finished)
    return events[-1].completion


def results(done: Completion, *texts: str) -> Message:
    pairs = zip(done.tool_calls, texts, strict=True)
    return Message.user([ToolResultBlock(tool_use_id=call.id, content=text) for call, text in pairs])


def sessions(daemon: Harness) -> list[dict[str, Any]]:
    open_ones = daemon.call("session/list")["sessions"]
    return [*open_ones, *daemon.call("session/list", state="closed")["sessions"]]


# -- within a chat


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_a_stream_ends_at_a_call_of_the_caller_and_the_result_goes_on_with_the_turn(
    daemon: Harness, mode: str
) -> None:
    async with chatting(daemon, mode=mode) as chat:
        for _ in range(2):
            first = await events_of(chat, 'Let me see.\n@mcp look_up {"word": "sun"}\nThat was all.')
            done = end_of(first)
            assert done.finish_reason is FinishReason.TOOL_CALLS
            (call,) = done.tool_calls
            assert (call.name, call.input) == ("look_up", {"word": "sun"})
            assert done.messages == (Message.assistant([TextBlock(text="Let me see."), call]),)
            assert done.message == done.messages[-1]
            started = next(event for event in first if isinstance(event, ToolStarted))
            assert (started.id, started.name, started.ours) == (call.id, "look_up", True)
            second = await events_of(chat, results(done, "a star"))
            last = end_of(second)
            assert (last.text, last.finish_reason, last.tool_calls) == ("That was all.", FinishReason.STOP, ())
            assert last.messages == (Message.assistant("That was all."),)
            assert last.turn_id == done.turn_id
            told = [event for event in (*first, *second) if isinstance(event, MessageDone)]
            assert [event.message for event in told] == [*done.messages, *last.messages], "each message is told once"
            assert "".join(e.text for e in (*first, *second) if isinstance(e, TextDelta)) == "Let me see.That was all."
            assert not any(isinstance(event, ToolEnded) for event in second), "the caller knows its own results"


async def test_calls_of_one_message_wait_together(daemon: Harness) -> None:
    async with chatting(daemon) as chat:
        done = end_of(await events_of(chat, PARALLEL))
        assert [call.name for call in done.tool_calls] == ["look_up", "ask"]
        assert len(done.messages) == 1 and done.messages[0].tool_uses == done.tool_calls
        assert end_of(await events_of(chat, results(done, "one", "two"))).text == "That was all."
        told = daemon.call("session/events", session_id=chat.session_id, types=["tool_result"])["events"]
        assert sorted(event["content"] for event in told) == ["one", "two"]


async def test_calls_one_after_the_other_are_a_round_each(daemon: Harness) -> None:
    async with chatting(daemon) as chat:
        done = end_of(await events_of(chat, '@mcp look_up {"n": 1}\n@mcp look_up {"n": 2}\nDone now.'))
        seen = []
        while done.tool_calls:
            seen.append([call.input for call in done.tool_calls])
            done = end_of(await events_of(chat, results(done, *("ok" for _ in done.tool_calls))))
        assert (seen, done.text) == ([[{"n": 1}], [{"n": 2}]], "Done now.")


async def test_images_and_errors_go_back_to_the_model(daemon: Harness) -> None:
    image = ImageBlock.of(b"GIF89a" + b"\0" * 9, "image/gif")
    async with chatting(daemon) as chat:
        done = end_of(await events_of(chat, PARALLEL))
        one, two = done.tool_calls
        brought = [
            ToolResultBlock(tool_use_id=two.id, content="not found", is_error=True),
            ToolResultBlock(tool_use_id=one.id, content=(TextBlock(text="see", cache=True), image)),
        ]
        assert end_of(await events_of(chat, Message.user(brought))).text == "That was all."
        told = daemon.call("session/events", session_id=chat.session_id, types=["tool_result"])["events"]
        by_id = {event["tool_use_id"]: event for event in told}
        assert (by_id[two.id]["content"], by_id[two.id]["is_error"]) == ("not found", True)
        assert [block["kind"] for block in by_id[one.id]["blocks"]] == ["text", "image"]


async def test_tools_that_run_here_run_beside_those_of_the_caller(daemon: Harness) -> None:
    ran: list[int] = []

    @tool
    async def add(a: int) -> str:
        """Add."""
        await trio.lowlevel.checkpoint()
        ran.append(a)
        return "added"

    script = '@parallel\n@mcp add {"a": 1}\n@mcp look_up {}\n@end\n@mcp add {"a": 2}\nBoth.'
    async with chatting(daemon, add, LOOK_UP) as chat:
        done = end_of(await events_of(chat, script))
        assert [call.name for call in done.tool_calls] == ["look_up"]
        assert ran == [1], "the answer ends when all that runs here has ended"
        last = end_of(await events_of(chat, results(done, "found")))
        assert (last.text, ran) == ("Both.", [1, 2])
        said = [*done.messages, results(done, "found"), *last.messages]
        answered = {block.tool_use_id for m in said for block in m.content if isinstance(block, ToolResultBlock)}
        assert answered == {call.id for message in said for call in message.tool_uses}, "each call has its result"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (lambda done: results(done, "a", "b").model_copy(update={"content": results(done, "a", "b").content[:1]}), "no result for"),
        (lambda done: Message.user([ToolResultBlock(tool_use_id="x", content="")]), "no open call; these calls wait"),
        (lambda done: "And now?", "no result for"),
        (lambda done: Message.user([*results(done, "a", "b").content, TextBlock(text="And?")]), "more than results"),
    ],
)  # fmt: skip
async def test_wrong_results_are_refused_and_the_calls_wait_on(daemon: Harness, prompt: Any, words: str) -> None:
    async with chatting(daemon) as chat:
        done = end_of(await events_of(chat, PARALLEL))
        with pytest.raises(InvalidRequest, match=words):
            await events_of(chat, prompt(done))
        assert end_of(await events_of(chat, results(done, "a", "b"))).text == "That was all."


async def test_a_result_without_a_call_is_refused(daemon: Harness) -> None:
    async with chatting(daemon) as chat:
        with pytest.raises(InvalidRequest, match="no call waits for one"):
            await events_of(chat, Message.user([ToolResultBlock(tool_use_id="x", content="")]))


async def test_a_chat_that_ends_at_open_calls_leaves_nothing(daemon: Harness) -> None:
    async with chatting(daemon) as chat:
        assert end_of(await events_of(chat, PARALLEL)).tool_calls
    assert sessions(daemon) == [] and len(PARKED) == 0


async def test_calls_wait_across_a_restart_of_the_daemon(daemon: Harness) -> None:
    async with chatting(daemon) as chat:
        done = end_of(await events_of(chat, PARALLEL))
        daemon.kill()
        daemon.start()
        assert end_of(await events_of(chat, results(done, "a", "b"))).text == "That was all."


async def test_a_call_that_nobody_answers_ends_after_its_time(daemon: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clisup.llm.serving.SLACK_S", 0.0)
    hasty = ToolDefinition("look_up", "Look a word up.", {"type": "object"}, timeout_s=0.2)
    async with chatting(daemon, hasty) as chat:
        done = end_of(await events_of(chat, "@mcp look_up {}\nThat was all."))
        while daemon.call("session/get", session_id=chat.session_id)["tools"]["open"]:
            await trio.sleep(0.01)
        events = await events_of(chat, results(done, "too late"))
        (ended,) = [event for event in events if isinstance(event, ToolEnded)]
        assert ended.result.is_error and "did not answer within" in ended.result.text


# -- without a chat


async def test_calls_without_a_chat_go_on_with_the_parked_turn(daemon: Harness) -> None:
    model = demo(daemon)
    with trio.fail_after(BOUND_S):
        messages = [Message.user(f"{PARALLEL}\n@mcp ask {{}}\nLast.")]
        done = await model.complete(messages, tools=[LOOK_UP, OPENAI])
        turn, rounds = done.turn_id, 1
        assert len(PARKED) == 1 and len(sessions(daemon)) == 1
        while done.tool_calls:
            messages += [*done.messages, results(done, *("ok" for _ in done.tool_calls))]
            session, done = done.session_id, await model.complete(messages, tools=[LOOK_UP, OPENAI])
            rounds += 1
            assert (done.session_id, done.turn_id) == (session, turn)
    assert (done.text, rounds) == ("Last.", 3)
    assert len(PARKED) == 0 and sessions(daemon) == []


async def test_wrong_results_without_a_chat_lose_nothing(daemon: Harness) -> None:
    model = demo(daemon)
    with trio.fail_after(BOUND_S):
        done = await model.complete(PARALLEL, tools=[LOOK_UP, OPENAI])
        before = [Message.user(PARALLEL), *done.messages]
        with pytest.raises(InvalidRequest, match="no result for"):
            await model.complete([*before, results(done, "a", "b").model_copy(
                update={"content": results(done, "a", "b").content[:1]})], tools=[LOOK_UP, OPENAI])  # fmt: skip
        assert len(PARKED) == 1
        last = await model.complete([*before, results(done, "a", "b")], tools=[LOOK_UP, OPENAI])
    assert (last.text, last.turn_id) == ("That was all.", done.turn_id)


async def test_results_may_come_in_a_message_each_and_the_tools_need_not_be_given_again(daemon: Harness) -> None:
    model = demo(daemon)
    with trio.fail_after(BOUND_S):
        done = await model.complete(PARALLEL, tools=[LOOK_UP, OPENAI])
        each = [Message.user([block]) for block in results(done, "a", "b").content]
        last = await model.complete([Message.user(PARALLEL), *done.messages, *each])
    assert (last.text, last.turn_id) == ("That was all.", done.turn_id)


async def test_a_tool_that_ran_for_a_parked_turn_does_not_run_again(daemon: Harness) -> None:
    ran: list[str] = []

    @tool
    def note() -> str:
        """Note it."""
        ran.append("note")
        return "noted"

    script = "@parallel\n@mcp note {}\n@mcp look_up {}\n@end\nThat was all."
    with trio.fail_after(BOUND_S):
        done = await demo(daemon).complete(script, tools=[note, LOOK_UP])
        last = await demo(daemon).complete(
            [Message.user(script), *done.messages, results(done, "found")], tools=[note, LOOK_UP]
        )
    assert (last.text, ran) == ("That was all.", ["note"])


async def test_results_whose_chat_is_gone_go_to_a_new_session_with_the_history(daemon: Harness) -> None:
    call = ToolUseBlock(id="call_1", name="look_up", input={"word": "sun"})
    said = [
        Message.user("My name is Ada."),
        Message.assistant("Hello."),
        Message.user("What is the sun?"),
        Message.assistant([call]),
        Message.user([ToolResultBlock(tool_use_id="call_1", content="a star")]),
    ]
    with trio.fail_after(BOUND_S):
        done = await demo(daemon).complete(said, tools=[LOOK_UP])
        with pytest.raises(InvalidRequest, match="no result for call_1"):
            await demo(daemon).complete([*said[:-1], Message.user("Never mind.")], tools=[LOOK_UP])
    assert "What is the sun?" in done.text and "a star" in done.text and "Ada" not in done.text
    assert sessions(daemon) == []


async def test_another_conversation_with_the_same_call_does_not_get_a_parked_chat(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        done = await demo(daemon).complete(PARALLEL, tools=[LOOK_UP, OPENAI])
        other = [Message.user("Something else."), *done.messages, results(done, "a", "b")]
        answer = await demo(daemon).complete(other, tools=[LOOK_UP, OPENAI])
        assert answer.session_id != done.session_id and len(PARKED) == 1
        assert (await demo(daemon).complete([Message.user(PARALLEL), *other[1:]])).session_id == done.session_id


async def test_one_parked_chat_too_many_closes_the_oldest(daemon: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ParkedChats(most=1)
    monkeypatch.setattr("clisup.llm.sessions.session_chat.PARKED", table)
    with trio.fail_after(BOUND_S):
        first = await demo(daemon).complete(PARALLEL, tools=[LOOK_UP, OPENAI])
        second = await demo(daemon).complete(PARALLEL, tools=[LOOK_UP, OPENAI])
        while [found["session_id"] for found in sessions(daemon)] != [second.session_id]:
            await trio.sleep(0.01)
    assert len(table) == 1 and first.session_id != second.session_id


async def test_a_parked_chat_that_nobody_takes_is_closed_after_its_time(daemon: Harness) -> None:
    hasty = ToolDefinition("look_up", "Look a word up.", {"type": "object"}, timeout_s=0.05)
    with trio.fail_after(BOUND_S):
        await demo(daemon).complete("@mcp look_up {}", tools=[hasty])
        while sessions(daemon):
            await trio.sleep(0.01)
    assert len(PARKED) == 0


def test_the_end_of_the_run_closes_what_is_parked(daemon: Harness) -> None:
    async def main() -> Completion:
        with trio.fail_after(BOUND_S):
            return await demo(daemon).complete(PARALLEL, tools=[LOOK_UP, OPENAI])

    assert trio.run(main).tool_calls
    assert sessions(daemon) == [] and len(PARKED) == 0


async def test_an_answer_that_is_left_before_its_end_ends_the_turn_and_parks_nothing(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with demo(daemon).stream(PARALLEL, tools=[LOOK_UP, OPENAI]) as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    break
        assert sessions(daemon) == [] and len(PARKED) == 0
        async with chatting(daemon) as chat:
            done = end_of(await events_of(chat, f"{PARALLEL}\n@stall"))
            async with chat.stream(results(done, "a", "b")) as rest:  # type: ignore[attr-defined]
                async for event in rest:
                    if isinstance(event, TextDelta):
                        break
            assert daemon.call("session/get", session_id=chat.session_id)["state"] == "idle"
            assert end_of(await events_of(chat, "And on.")).text == "You said: And on."


# -- above a chat


async def test_a_turn_of_a_conversation_goes_on_with_the_results_of_its_calls(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), tools=[LOOK_UP, OPENAI]) as conversation:
            first = await conversation.send(f"@usage 20 3\n{PARALLEL}")
            assert (
                first.finish_reason is FinishReason.TOOL_CALLS and [call.result for call in first.calls] == [None] * 2
            )
            with pytest.raises(InvalidRequest, match="no result for"):
                await conversation.send("And now?")
            brought = [ToolResultBlock(tool_use_id=call.id, content=call.name) for call in first.calls]
            turn = await conversation.send(Message.user(brought))
            assert conversation.turns == (turn,) and conversation.chats_opened == 1
            again = await conversation.send("@recall")
    assert (turn.id, turn.text, turn.prompt) == (first.id, "That was all.", first.prompt)
    assert [call.essence for call in turn.calls] == [
        ("look_up", {"word": "a"}, "look_up", False), ("ask", {"n": 2}, "ask", False),
    ]  # fmt: skip
    assert (turn.usage.input_tokens, turn.outcome) == (20, "completed")
    assert conversation.chats_opened == 1 and "@usage 20 3" in again.text, "nothing was edited: it is the same chat"


async def test_a_conversation_that_was_saved_at_open_calls_goes_on_elsewhere(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), tools=[LOOK_UP, OPENAI]) as conversation:
            await conversation.send("My name is Ada.")
            await conversation.send(PARALLEL)
        model = ScriptedModel("It is done.")
        async with Conversation.from_json(conversation.to_json(), model, tools=[LOOK_UP, OPENAI]) as other:
            brought = [ToolResultBlock(tool_use_id=call.id, content=call.name) for call in other.turns[-1].calls]
            turn = await other.send(Message.user(brought))
    assert len(other.turns) == 2 and turn.text == "It is done."
    assert [call.result is not None for call in turn.calls] == [True, True]
    (asked,) = model.asked
    assert [message.role for message in asked.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert asked.prompt.content == tuple(brought)


async def test_the_limit_in_the_middle_of_a_turn_hands_it_to_the_next_model(daemon: Harness) -> None:
    spare = ScriptedModel("It is a star.")
    client = Client(demo(daemon), [spare], retry=RetryPolicy(attempts=1))
    with trio.fail_after(BOUND_S):
        async with client.chat(ChatOptions(tools=[LOOK_UP])) as chat:
            done = end_of(await events_of(chat, "@mcp look_up {}\n@error usage_limit"))
            last = end_of(await events_of(chat, results(done, "a star")))
    assert (last.text, str(last.model)) == ("It is a star.", "scripted/model")
    assert spare.asked[0].messages[1].tool_uses == done.tool_calls
    assert spare.asked[0].prompt == results(done, "a star")


async def test_a_client_finds_the_model_whose_turn_is_parked(daemon: Harness) -> None:
    broken = ScriptedModel(*[Overloaded("busy", kind="overloaded")] * 2)
    client = Client(broken, [demo(daemon)], retry=RetryPolicy(attempts=1))
    with trio.fail_after(BOUND_S):
        done = await client.complete(PARALLEL, tools=[LOOK_UP, OPENAI])
        last = await client.complete([Message.user(PARALLEL), *done.messages, results(done, "a", "b")])
    assert (last.text, last.turn_id, len(broken.asked)) == ("That was all.", done.turn_id, 1)


def test_blocking_code_owns_the_loop_as_well(daemon: Harness) -> None:
    model = blocking.resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))
    done = model.complete(PARALLEL, tools=[LOOK_UP, OPENAI])
    last = model.complete([Message.user(PARALLEL), *done.messages, results(done, "a", "b")])
    assert (last.text, last.turn_id) == ("That was all.", done.turn_id)
    with model.chat(ChatOptions(tools=[LOOK_UP, OPENAI])) as chat:
        done = chat.complete(PARALLEL)
        assert chat.complete(results(done, "a", "b")).text == "That was all."


async def test_a_budget_counts_a_turn_that_stops_at_calls_once(daemon: Harness) -> None:
    budget = Budget(usd=5.0)
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), tools=[LOOK_UP, OPENAI], budget=budget) as conversation:
            turn = await conversation.send(f"@usage 20 3\n@cost 0.5\n{PARALLEL}")
            brought = [ToolResultBlock(tool_use_id=call.id, content="") for call in turn.calls]
            await conversation.send(Message.user(brought))
    assert (budget.spent.usd, budget.spent.tokens, budget.spent.unknown_usd) == (0.5, 23, 0)


# -- what a definition is


@pytest.mark.parametrize(
    "given",
    [
        {"name": "ask", "description": "Ask.", "input_schema": {"type": "object"}, "timeout_s": 5},
        ToolDefinition("ask", "Ask.", {"type": "object"}, timeout_s=5),
    ],
)
def test_a_definition_may_be_a_mapping(given: Any) -> None:
    (found,) = ChatOptions(tools=[given]).offered
    assert found == ToolDefinition("ask", "Ask.", {"type": "object"}, timeout_s=5)
    assert ChatOptions(tools=[OPENAI]).offered == (ToolDefinition("ask", "Ask.", {"type": "object"}),)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "a b", "input_schema": {"type": "object"}}, "its name"),
        ({"name": "a", "input_schema": {"type": "string"}}, "JSON Schema of type object"),
        ({"name": "a"}, "name or input_schema is missing"),
        ({"name": "a", "input_schema": {"type": "object"}, "run": 1}, "unknown key 'run'"),
        ({"name": "a", "input_schema": {"type": "object"}, "timeout_s": 0}, "timeout_s"),
        ({"type": "function", "function": {}}, "its name"),
    ],
)
def test_a_mapping_that_defines_no_tool_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ChatOptions(tools=[given])


def test_a_definition_tells_the_daemon_how_long_its_calls_wait() -> None:
    own = ToolDefinition("own", "", {"type": "object"}, timeout_s=90)
    assert [(told["timeout_s"], told["wait_s"]) for told in to_wire([LOOK_UP, own])] == [(630, 630), (120, 120)]


async def test_a_value_has_no_place_for_calls_of_the_caller() -> None:
    for ask in (
        lambda: ScriptedModel("[1]").structured("Numbers?", list[int], tools=[LOOK_UP]),
        lambda: Predict("a -> b", model=ScriptedModel("b"), options=ChatOptions(tools=[LOOK_UP])).run(a="x"),
    ):
        with pytest.raises(UsageError, match="the caller runs it"):
            await ask()


# -- in a script


async def test_a_script_ends_an_answer_at_calls_of_the_caller() -> None:
    model = ScriptedModel(Reply("Let me see.", ToolCall("look_up", {"word": "sun"})), "A star.")
    async with model.chat(ChatOptions(tools=[LOOK_UP])) as chat:
        done = end_of(await events_of(chat, "What is the sun?"))
        assert done.finish_reason is FinishReason.TOOL_CALLS and [call.input for call in done.tool_calls] == [
            {"word": "sun"}
        ]
        with pytest.raises(InvalidRequest, match="no result for"):
            await events_of(chat, "And?")
        assert end_of(await events_of(chat, results(done, "a star"))).text == "A star."
    model.assert_used_up()


async def test_a_script_that_goes_on_after_such_a_call_is_refused() -> None:
    model = ScriptedModel(Reply(ToolCall("look_up"), "And then."))
    with pytest.raises(UsageError, match="move the rest into the next step"):
        await model.complete("Hi", tools=[LOOK_UP])
