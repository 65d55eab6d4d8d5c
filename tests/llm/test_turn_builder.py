"""Streams become turns: which calls ran side by side, which work was a sub-agent's, and what was left open."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from conversation_samples import AT, result

from clisup.llm.answers import (
    Completion,
    Finished,
    MessageDone,
    ModelName,
    Retracted,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
)
from clisup.llm.conversation.context import context_of
from clisup.llm.conversation.nodes import AgentPolicy, Step, SubAgentDelegation, ToolInteraction, Turn
from clisup.llm.conversation.turn_builder import TurnBuilder, turns_of
from clisup.llm.failures import Overloaded
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolUseBlock
from clisup.llm.testing import Reply, ScriptedModel, ToolCall

LATER = "2026-01-01T00:00:09.000000Z"


def built(events: Iterable[StreamEvent], **options: object) -> Turn:
    builder = TurnBuilder(Message.user("Go."), id="t", at=AT, **options)  # type: ignore[arg-type]
    for event in events:
        builder.add(event)
    return builder.turn(ended_at=LATER)


def said(text: str, *uses: str, parent: str | None = None) -> MessageDone:
    blocks = [ToolUseBlock(id=use, name="read", input={}) for use in uses]
    return MessageDone(Message.assistant([TextBlock(text=text), *blocks]), parent, AT)


def started(id_: str, parent: str | None = None, name: str = "read") -> ToolStarted:
    return ToolStarted(id_, name, {"path": id_}, parent, AT)


def ended(id_: str, text: str = "ok", parent: str | None = None) -> ToolEnded:
    return ToolEnded(result(id_, text), parent, LATER)


def finished(*messages: Message) -> Finished:
    last = messages[-1] if messages else Message.assistant("Done.")
    return Finished(Completion(last, ModelName("demo", "m"), messages=messages, session_id="s1", turn_id="turn-7"))


def shape(steps: Iterable[Step]) -> list[list[object]]:
    """A text as itself, a call as its id, a delegation as (id, its shape)."""
    return [
        [
            (part.id, shape(part.steps))
            if isinstance(part, SubAgentDelegation)
            else part.id
            if isinstance(part, ToolInteraction)
            else part.text
            for part in step.said
        ]
        for step in steps
    ]


def test_calls_before_the_first_result_are_one_step_and_what_comes_after_it_is_the_next() -> None:
    turn = built(
        [said("Two."), started("a"), started("b"), ended("b"), ended("a"), said("One."), started("c"), ended("c")]
    )
    assert shape(turn.steps) == [["Two.", "a", "b"], ["One.", "c"]]
    assert [call.result is not None for call in turn.calls] == [True, True, True]


def test_calls_one_after_the_other_without_a_word_are_steps_of_their_own() -> None:
    turn = built([started("a"), ended("a"), started("b"), ended("b"), said("Done.")])
    assert shape(turn.steps) == [["a"], ["b"], ["Done."]]


@pytest.mark.parametrize("first", ["message", "start"])
def test_a_call_that_is_told_of_twice_is_one_call_where_the_message_has_it(first: str) -> None:
    events = [said("Look.", "a"), started("a")]
    turn = built([*(events if first == "message" else events[::-1]), ended("a")])
    assert shape(turn.steps) == [["Look.", "a"]]
    assert turn.calls[0].input == {"path": "a"}


def test_times_and_names_are_kept() -> None:
    call = built([started("a"), ended("a")]).calls[0]
    assert (call.name, call.at, call.ended_at, call.essence) == (
        "read",
        AT,
        LATER,
        ("read", {"path": "a"}, "ok", False),
    )


def test_the_completions_messages_say_what_was_one_message() -> None:
    """A CLI that runs the first tool before the second one is told of: the events alone look like two messages."""
    events = [said("Two."), started("a"), ended("a"), started("b"), ended("b"), said("Done.")]
    whole = (
        said("Two.", "a", "b").message,
        Message.user([result("a"), result("b")]),
        Message.assistant("Done."),
    )
    turn = built([*events, finished(*whole)])
    assert shape(turn.steps) == [["Two.", "a", "b"], ["Done."]]
    assert context_of([turn])[1:] == (
        Message.assistant([*whole[0].content[:1], *(ToolUseBlock(id=i, name="read", input={"path": i}) for i in "ab")]),
        *whole[1:],
    )
    assert (turn.outcome, turn.model, turn.session_id, turn.turn_id) == ("completed", "demo/m", "s1", "turn-7")


def test_messages_that_do_not_know_all_calls_do_not_hide_them() -> None:
    turn = built([started("a"), ended("a"), said("Done."), finished(Message.assistant("Done."))])
    assert shape(turn.steps) == [["a"], ["Done."]]


def test_a_completion_alone_is_a_turn() -> None:
    assert shape(built([finished()]).steps) == [["Done."]]


def test_deltas_are_replaced_by_their_message_and_kept_where_it_never_came() -> None:
    whole = built([TextDelta("Do"), TextDelta("ne."), said("Done.")])
    cut = built([ThinkingDelta("Hm"), TextDelta("Do"), TextDelta("n")])
    assert (shape(whole.steps), shape(cut.steps)) == ([["Done."]], [["Don"]])
    assert cut.outcome == "interrupted"


def test_text_that_was_taken_back_is_gone() -> None:
    assert shape(built([TextDelta("Wrong"), Retracted("retry"), TextDelta("Right")]).steps) == [["Right"]]


def test_an_answer_that_begins_anew_has_nothing_of_the_one_before() -> None:
    wrong = MessageDone(Message.assistant("Wrong."))
    assert shape(built([wrong, TextDelta("Half"), Retracted("another try", all=True), TextDelta("Right")]).steps) == [
        ["Right"]
    ]


def test_sub_agents_are_nested_by_their_parents() -> None:
    events = [
        started("s", name="Agent"),
        TaskChanged("task-1", "running", "look", "s", AT),
        said("I look.", parent="s"),
        started("deep", "s", name="Agent"),
        started("x", "deep"),
        ended("x", "deep answer", "deep"),
        said("Seen.", parent="deep"),
        ended("deep", "report of deep", "s"),
        said("All told.", parent="s"),
        TaskChanged("task-1", "completed", "All told.", "s", AT),
        ended("s", "report"),
        said("Good."),
    ]
    turn = built(events)
    assert shape(turn.steps) == [[("s", [["I look.", ("deep", [["x"], ["Seen."]])], ["All told."]])], ["Good."]]
    outer = turn.calls[0]
    assert isinstance(outer, SubAgentDelegation)
    assert (outer.description, outer.state, outer.result) == ("look", "completed", result("s", "report"))


def test_side_by_side_sub_agents_do_not_mix() -> None:
    events = [started("p"), started("q"), said("P1", parent="p"), said("Q1", parent="q"), TextDelta("P", "p")]
    turn = built([*events, said("P2", parent="p"), ended("q"), ended("p"), said("Both.")])
    assert shape(turn.steps) == [[("p", [["P1", "P2"]]), ("q", [["Q1"]])], ["Both."]]


def test_a_sub_agent_gets_the_policy_of_its_kind() -> None:
    events = [ToolStarted("s", "Agent", {"subagent_type": "Explore"}), TaskChanged("t", "running", "", "s")]
    policy = AgentPolicy(keep="nothing")
    for agents in ({"Explore": policy}, {"Agent": policy}):
        call = built(events, agents=agents).calls[0]
        assert isinstance(call, SubAgentDelegation) and call.policy == policy
    call = built(events, agents={"Plan": policy}).calls[0]
    assert isinstance(call, SubAgentDelegation) and call.policy is None


def test_work_of_a_call_that_nobody_told_of_is_kept_and_not_sent() -> None:
    turn = built([said("I look.", parent="lost"), said("Done.")])
    assert shape(turn.steps) == [[("lost", [["I look."]]), "Done."]]
    assert [message.text for message in context_of([turn])] == ["Go.", "Done."]


def test_calls_that_name_each_other_as_parents_end_somewhere() -> None:
    assert shape(built([started("a", "a"), said("x", parent="a")]).steps) == [[("a", [["x"]])]]
    assert shape(built([started("a", "b"), started("b", "a"), said("x", parent="a")]).steps) == [
        [("b", [[("a", [["x"]])]])]
    ]


def test_a_result_without_a_call_and_a_second_one_are_passed_over() -> None:
    turn = built([ended("nobody"), started("a"), ended("a", "first"), ended("a", "second")])
    assert shape(turn.steps) == [["a"]]
    assert turn.calls[0].essence[2] == "first"


def test_an_id_that_an_earlier_turn_used_is_made_anew_with_its_result() -> None:
    turn = built([started("item_1"), ended("item_1"), said("Done.")], taken={"item_1", "item_1-2"})
    call = turn.calls[0]
    assert (call.id, call.result) == ("item_1-3", result("item_1-3"))


def test_a_turn_that_failed_before_it_did_anything_is_not_in_the_context() -> None:
    builder = TurnBuilder(Message.user("Go."), id="t", at=AT)
    turn = builder.turn(ended_at=LATER, error=Overloaded("busy", kind="overloaded"))
    assert (turn.outcome, turn.error, turn.error_kind, turn.include_in_context) == (
        "failed",
        "busy",
        "overloaded",
        False,
    )
    builder.add(started("a"))
    assert builder.turn(ended_at=LATER, error=Overloaded("busy", kind="overloaded")).include_in_context


async def test_a_scripted_reply_comes_back_as_it_was_written() -> None:
    inner = ToolCall("grep", {"q": "x"}, result="three")
    reply = Reply(
        "I look.",
        [ToolCall("read", {"p": 1}, result="one"), ToolCall("read", {"p": 2}, result=OSError("no"))],
        ToolCall("Agent", {"subagent_type": "Explore"}, result="report", inside=["Inside.", inner, "Told."]),
        "Done.",
    )
    model = ScriptedModel(reply)
    async with model.chat() as chat:
        turn = built([event async for event in chat.stream("Go.")])
    assert shape(turn.steps) == [
        ["I look.", "call-1", "call-2"],
        [("call-3", [["Inside.", "call-4"], ["Told."]])],
        ["Done."],
    ]
    assert [call.failed for call in turn.calls] == [False, True, False]
    assert turn.text == "Done."


def test_messages_from_elsewhere_become_turns() -> None:
    messages = [
        Message.user("One."),
        Message.assistant([ThinkingBlock(text="Hm.", signature="s"), ToolUseBlock(id="a", name="read", input={})]),
        Message.user([result("a"), TextBlock(text="Two.")]),
        Message.assistant("Done."),
    ]
    made = turns_of(messages, at=AT)
    assert [(turn.id, turn.prompt.text) for turn in made] == [("turn-1", "One."), ("turn-2", "Two.")]
    assert shape(made[0].steps) == [["Hm.", "a"]]
    assert made[0].calls[0].result == result("a")
    assert all(turn.include_in_context and turn.outcome == "completed" for turn in made)
