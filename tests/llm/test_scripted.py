"""A scripted model says what it is told to, in the order of a real turn, and remembers what it was asked."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pydantic import BaseModel

from clisup.errors import UsageError
from clisup.llm.answers import (
    Completion,
    Finished,
    MessageDone,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
)
from clisup.llm.chat import ChatOptions, LanguageModel
from clisup.llm.failures import Overloaded, RateLimited, Unsupported
from clisup.llm.messages import Message
from clisup.llm.testing import Asked, Reply, ScriptedModel, ScriptError, Thinking, ToolCall
from clisup.llm.tools import ToolOutput
from clisup.model.usage import Usage


class Adding:
    name, description, timeout_s = "add", "Add.", None
    input_schema: dict[str, Any] = {"type": "object"}

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return ToolOutput(str(arguments["a"] + arguments["b"]))


async def ask(model: LanguageModel, *prompts: str, options: ChatOptions | None = None) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    async with model.chat(options) as chat:
        for prompt in prompts:
            events += [event async for event in chat.stream(prompt)]
    return events


def completion(events: list[StreamEvent]) -> Completion:
    assert isinstance(events[-1], Finished)
    return events[-1].completion


async def test_a_text_comes_in_pieces_then_whole_then_as_the_completion() -> None:
    events = await ask(ScriptedModel("Hello there."), "Hi")
    said = Message.assistant("Hello there.")
    assert [type(event) for event in events] == [TextDelta, TextDelta, MessageDone, Finished]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello there."
    assert completion(events).message == said
    assert completion(events).messages == (said,)
    assert completion(events).usage == Usage()


async def test_a_tool_of_the_chat_is_really_run_and_its_result_is_in_the_messages() -> None:
    model = ScriptedModel(Reply(Thinking("Hm."), "Let me see.", ToolCall("add", {"a": 1, "b": 2}), "It is 3."))
    events = await ask(model, "1+2?", options=ChatOptions(tools=[Adding()]))
    started, ended = [event for event in events if isinstance(event, (ToolStarted, ToolEnded))]
    assert isinstance(started, ToolStarted) and started.ours and started.input == {"a": 1, "b": 2}
    assert isinstance(ended, ToolEnded) and ended.result.text == "3" and ended.result.tool_use_id == started.id
    assert [type(event) for event in events if not isinstance(event, TextDelta)] == [
        ThinkingDelta, ToolStarted, MessageDone, ToolEnded, MessageDone, Finished
    ]  # fmt: skip
    assert [[block.type for block in message.content] for message in completion(events).messages] == [
        ["thinking", "text", "tool_use"], ["tool_result"], ["text"]
    ]  # fmt: skip
    assert completion(events).text == "It is 3."


async def test_calls_of_one_message_run_side_by_side() -> None:
    both = trio.Event()
    running: list[str] = []

    class Meeting(Adding):
        async def run(self, arguments: dict[str, Any]) -> ToolOutput:
            running.append(arguments["me"])
            if len(running) == 2:
                both.set()
            await both.wait()
            return ToolOutput(arguments["me"])

    model = ScriptedModel(Reply([ToolCall("add", {"me": "a"}), ToolCall("add", {"me": "b"})], "Done."))
    with trio.fail_after(30):
        events = await ask(model, "go", options=ChatOptions(tools=[Meeting()]))
    assert [event.result.text for event in events if isinstance(event, ToolEnded)] == ["a", "b"]
    assert len(completion(events).messages) == 3


async def test_results_may_be_scripted_and_an_unknown_tool_is_an_error_for_the_model() -> None:
    calls = [ToolCall("Read", result="text"), ToolCall("Write", result=OSError("full")), ToolCall("none")]
    events = await ask(ScriptedModel(Reply(calls)), "go")
    results = [event.result for event in events if isinstance(event, ToolEnded)]
    assert [(result.text, result.is_error) for result in results] == [
        ("text", False),
        ("full", True),
        ("there is no tool 'none'", True),
    ]


async def test_a_sub_agent_says_what_is_inside_its_call() -> None:
    task = ToolCall("Task", {"prompt": "look"}, inside=[ToolCall("Read", result="x"), "I saw x."], id="t1")
    events = await ask(ScriptedModel(Reply(task, "It saw x.")), "go")
    inside = [event for event in events if getattr(event, "parent", None) == "t1"]
    assert {type(event) for event in inside} == {ToolStarted, MessageDone, ToolEnded, TextDelta}
    assert [event.state for event in events if isinstance(event, TaskChanged)] == ["running", "completed"]
    assert completion(events).messages[1].content[0].content == "I saw x."  # type: ignore[union-attr]
    assert len(completion(events).messages) == 3


async def test_an_error_is_raised_after_the_parts_and_a_tool_call_before_it_is_a_side_effect() -> None:
    model = ScriptedModel(
        RateLimited("wait", kind="rate_limit", retry_after_s=3.0),
        Reply("Half", error=Overloaded("busy", kind="overloaded")),
        Reply(ToolCall("Bash", result=""), error=Overloaded("busy", kind="overloaded")),
    )
    with pytest.raises(RateLimited, match="wait"):
        await ask(model, "1")
    with pytest.raises(Overloaded) as without:
        await ask(model, "2")
    with pytest.raises(Overloaded) as with_a_tool:
        await ask(model, "3")
    assert (without.value.side_effects, with_a_tool.value.side_effects) == (False, True)
    assert [asked.outcome for asked in model.asked] == ["failed"] * 3


async def test_an_error_may_stand_in_a_script_twice() -> None:
    busy = Overloaded("busy", kind="overloaded", hint="later", retry_after_s=3.0)
    model = ScriptedModel(Reply(ToolCall("Bash", result=""), error=busy), busy)
    raised: list[Overloaded] = []
    for _ in range(2):
        with pytest.raises(Overloaded) as failed:
            await ask(model, "go")
        raised.append(failed.value)
    assert [error.side_effects for error in raised] == [True, False]
    assert (str(raised[0]), raised[0].retry_after_s, raised[0].kind) == ("busy; later", 3.0, "overloaded")


async def test_a_function_sees_the_whole_conversation() -> None:
    def count(asked: Asked) -> str:
        return f"{len(asked.messages)} messages, system {asked.system}"

    async def late(asked: Asked) -> str:
        await trio.lowlevel.checkpoint()
        return asked.prompt.text.upper()

    history = (Message.user("a"), Message.assistant("b"))
    model = ScriptedModel("one", count, then=late)
    options = ChatOptions(system="Be.", history=history)
    events = await ask(model, "first", "second", "third", "fourth", options=options)
    texts = [event.completion.text for event in events if isinstance(event, Finished)]
    assert texts == ["one", "5 messages, system Be.", "THIRD", "FOURTH"]
    assert model.asked[0].messages[:2] == history


class Point(BaseModel):
    x: int


async def test_a_value_is_said_as_json_or_as_structured_output_where_that_is_there() -> None:
    with pytest.raises(Unsupported):
        async with ScriptedModel().chat() as chat:
            await anext(aiter(chat.stream("go", output_schema={"type": "object"})))
    model = ScriptedModel({"x": 1}, Point(x=2), structured=True)
    events = await ask(model, "1", "2")
    ends = [event.completion for event in events if isinstance(event, Finished)]
    assert [(end.text, end.structured) for end in ends] == [('{"x": 1}', {"x": 1}), ('{"x":2}', {"x": 2})]


async def test_what_the_script_does_not_have_is_a_failure_of_the_test() -> None:
    model = ScriptedModel("one", "two")
    await ask(model, "1")
    with pytest.raises(ScriptError, match="1 of 2 steps"):
        model.assert_used_up()
    await ask(model, "2")
    model.assert_used_up()
    with pytest.raises(ScriptError, match="the script has 2 steps and no answer to prompt 3: 'Hi'"):
        await ask(model, "Hi")


async def test_a_step_that_is_no_answer_is_named() -> None:
    with pytest.raises(UsageError, match="a value of type list is not an answer; give a text"):
        await ask(ScriptedModel(["one", "two"]), "1")  # type: ignore[arg-type]


async def test_a_stream_that_is_left_is_told_apart_and_its_turn_is_not_in_the_conversation() -> None:
    model = ScriptedModel("a long text of words", "next")
    async with model.chat() as chat:
        async for _ in chat.stream("1"):
            break
        async for _ in chat.stream("2"):
            pass
    assert [asked.outcome for asked in model.asked] == ["left", "finished"]
    assert len(model.asked[1].messages) == 1


async def test_a_models_stream_without_its_block_says_what_is_missing() -> None:
    await trio.lowlevel.checkpoint()
    with pytest.raises(TypeError, match=r"async with model\.stream"):
        async for _ in ScriptedModel("one").stream("go"):
            pass


async def test_a_part_may_be_waited_for() -> None:
    go, model = trio.Event(), ScriptedModel()
    model.steps = (Reply("one", go.wait, "two"),)
    got: list[StreamEvent] = []
    async with model.chat() as chat:
        stream = aiter(chat.stream("go"))
        got.append(await anext(stream))
        with trio.move_on_after(0) as cancelled:
            await anext(stream)
    assert cancelled.cancelled_caught
    assert got == [TextDelta("one")]
    assert model.asked[0].outcome == "left"
