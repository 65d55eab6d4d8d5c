"""A turn's envelopes become one answer, however the CLI tells it: by hand-made turns, and by every recording of a real CLI."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clisup.client.events import (
    ApprovalRequested,
    AssistantMessage,
    BackendRetry,
    Block,
    ContentDelta,
    Envelope,
    MessageStart,
    MessageStop,
    Notice,
    RateLimit,
    TaskUpdate,
    ToolResult,
    ToolUse,
    TurnCompleted,
)
from clisup.client.events import Retracted as TakenBack
from clisup.llm.answers import (
    Completion,
    Cost,
    Finished,
    FinishReason,
    MessageDone,
    ModelName,
    Retracted,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    Waiting,
)
from clisup.llm.failures import Cancelled, Failed, LLMError, Overloaded, RateLimited, Refused, Uncertain
from clisup.llm.fallbacks import RetryPolicy, falls_back
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.sessions.turn_reader import UNANSWERED, TurnReader
from clisup.model.events import TurnError
from clisup.model.usage import Usage
from tests.backends.recorded import PATHS, Recording, name_of

MODEL = ModelName("demo")
DONE = TurnCompleted(outcome="completed", stop_reason="end_turn", text="Done.")


def read(*events: Any, reader: TurnReader | None = None) -> list[StreamEvent]:
    reader = reader or TurnReader(MODEL, "s", "t1")
    envelopes = (Envelope("s", n, f"at {n}", "t1", "backend", event) for n, event in enumerate(events, 1))
    return [told for envelope in envelopes for told in reader.read(envelope)]


def end_of(events: Iterable[StreamEvent]) -> Completion:
    (completion,) = [event.completion for event in events if isinstance(event, Finished)]
    return completion


def text(message_id: str | None, *texts: str, parent: str | None = None) -> AssistantMessage:
    blocks = tuple(Block(kind="text", text=text) for text in texts)
    return AssistantMessage(message_id=message_id, blocks=blocks, parent_tool_use_id=parent)


def call(message_id: str, use_id: str, name: str = "Read") -> tuple[AssistantMessage, ToolUse]:
    block = Block(kind="tool_use", tool_use_id=use_id, name=name, input={"f": 1})
    message = AssistantMessage(message_id=message_id, blocks=(block,))
    return message, ToolUse(tool_use_id=use_id, name=name, input={"f": 1})


def test_blocks_of_one_message_are_one_message_and_calls_have_their_results_after_it() -> None:
    events = read(
        MessageStart(message_id="m1"),
        AssistantMessage(message_id="m1", blocks=(Block(kind="thinking", text="Hm."),)),
        text("m1", "Let me see."),
        *call("m1", "u1"),
        *call("m1", "u2"),
        MessageStop(message_id="m1"),
        ToolResult(tool_use_id="u2", content="two"),
        ToolResult(tool_use_id="u1", content="one", is_error=True),
        MessageStart(message_id="m2"),
        text("m2", "Done."),
        MessageStop(message_id="m2"),
        DONE,
    )
    one = Message.assistant(
        [
            ThinkingBlock(text="Hm."),
            TextBlock(text="Let me see."),
            ToolUseBlock(id="u1", name="Read", input={"f": 1}),
            ToolUseBlock(id="u2", name="Read", input={"f": 1}),
        ]
    )
    results = Message.user(
        [
            ToolResultBlock(tool_use_id="u2", content="two"),
            ToolResultBlock(tool_use_id="u1", content="one", is_error=True),
        ]
    )
    two = Message.assistant("Done.")
    assert end_of(events).messages == (one, results, two)
    assert end_of(events).message == two
    assert [event.message for event in events if isinstance(event, MessageDone)] == [one, two]
    kinds = [type(event) for event in events]
    assert kinds == [
        ThinkingDelta, TextDelta, ToolStarted, ToolStarted, MessageDone, ToolEnded, ToolEnded, TextDelta, MessageDone, Finished
    ]  # fmt: skip


def test_a_call_that_no_message_holds_is_in_one_all_the_same() -> None:
    """codex tells its items one by one, and calls without a message."""
    events = read(
        text("i1", "Let me see."),
        MessageStop(message_id="i1"),
        ToolUse(tool_use_id="u1", name="mcp__clisup__add", input={"a": 1}),
        ToolResult(tool_use_id="u1", content="3"),
        text("i2", "Done."),
        DONE,
    )
    started = next(event for event in events if isinstance(event, ToolStarted))
    assert (started.name, started.ours, started.at) == ("add", True, "at 3")
    assert [message.role for message in end_of(events).messages] == ["assistant", "assistant", "user", "assistant"]
    assert end_of(events).messages[1].content == (ToolUseBlock(id="u1", name="add", input={"a": 1}),)


def test_each_word_is_a_delta_once_whether_the_cli_streams_or_not() -> None:
    streamed = [ContentDelta(kind="text", text=piece, message_id="m1") for piece in ("On", "e.")]
    events = read(*streamed, text("m1", "One."), text("m2", "Two."), DONE)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["On", "e.", "Two."]
    blocks = read(*streamed, text("m1", "O", "ne."), DONE)
    assert [event.text for event in blocks if isinstance(event, TextDelta)] == ["On", "e."]
    cut = read(streamed[0], text("m1", "One."), DONE)
    assert [event.text for event in cut if isinstance(event, TextDelta)] == ["On", "e."]
    other = read(ContentDelta(kind="text", text="\ufffd", message_id="m1"), text("m1", "é"), DONE)
    assert [event.text for event in other if isinstance(event, TextDelta)] == ["\ufffd"]
    assert end_of(other).text == "é"


def test_what_a_sub_agent_says_is_told_as_its_own_and_is_not_in_the_answer() -> None:
    events = read(
        *call("m1", "u1", "Task"),
        MessageStop(message_id="m1"),
        TaskUpdate(task_id="a", state="running", description="look", tool_use_id="u1"),
        ContentDelta(kind="text", text="In", message_id="s1", parent_tool_use_id="u1"),
        text("s1", "Inside.", parent="u1"),
        ToolUse(tool_use_id="u2", name="Read", parent_tool_use_id="u1"),
        ToolResult(tool_use_id="u2", content="x"),
        ToolResult(tool_use_id="u1", content="seen"),
        text("m2", "Done."),
        DONE,
    )
    inside = [event for event in events if getattr(event, "parent", None) == "u1"]
    assert [type(event) for event in inside] == [TextDelta, TextDelta, ToolStarted, MessageDone, ToolEnded]
    assert TaskChanged("a", "running", "look", "u1", "at 4") in events
    assert [message.role for message in end_of(events).messages] == ["assistant", "user", "assistant"]


def test_text_that_is_taken_back_is_in_no_message() -> None:
    events = read(
        ContentDelta(kind="text", text="Wrong", message_id="m1"),
        TakenBack(message_id="m1", reason="cut"),
        MessageStop(message_id="m1"),
        text("m2", "Done."),
        DONE,
    )
    assert Retracted("cut") in events
    assert end_of(events).messages == (Message.assistant("Done."),)
    kept = read(text("m1", "Stays.", "Goes."), TakenBack(message_id="m1", from_index=1, reason="cut"), DONE)
    assert end_of(kept).messages == (Message.assistant("Stays."),)


def test_words_of_the_cli_itself_are_no_words_of_the_model() -> None:
    note = replace(text("n", "API Error"), synthetic=True)
    assert end_of(read(text("m1", "Done."), note, DONE)).messages == (Message.assistant("Done."),)


def test_an_answer_that_was_in_no_message_is_taken_from_the_end() -> None:
    assert end_of(read(DONE)).message == Message.assistant("Done.")
    assert end_of(read(replace(DONE, text=""))).message == Message.assistant(())


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    last = end_of(read(*call("m1", "u1"), replace(DONE, text=""))).messages[-1]
    assert last == Message.user([ToolResultBlock(tool_use_id="u1", content=UNANSWERED, is_error=True)])


def test_a_result_that_comes_when_the_model_has_gone_on_is_told_and_changes_no_message() -> None:
    late = ToolResult(tool_use_id="u1", content="late")
    events = read(
        *call("m1", "u1"),
        MessageStop(message_id="m1"),
        text("m2", "Meanwhile."),
        MessageStop(message_id="m2"),
        late,
        DONE,
    )
    assert [event.result.text for event in events if isinstance(event, ToolEnded)] == ["late"]
    _, result, two = end_of(events).messages
    assert (result.content[0].content, two.text) == (UNANSWERED, "Meanwhile.")  # type: ignore[union-attr]


def test_an_image_that_a_tool_gave_is_a_block() -> None:
    blocks = (Block(kind="text", text="Look:"), Block(kind="image", media_type="image/png", data="iVBORw0KGgo="))
    events = read(*call("m1", "u1"), ToolResult(tool_use_id="u1", content="Look:", blocks=blocks), DONE)
    (ended,) = [event for event in events if isinstance(event, ToolEnded)]
    assert [getattr(block, "type", None) for block in ended.result.content] == ["text", "image"]


def test_usage_cost_and_the_reason_of_the_end_come_through() -> None:
    usage = Usage(input_tokens=3, cache_read_input_tokens=2, source="reported")
    end = replace(DONE, stop_reason="max_tokens", usage=usage, cost_usd=0.5, cost_source="estimated")
    done = end_of(read(replace(end, structured={"a": 1})))
    assert (done.usage, done.cost, done.finish_reason) == (usage, Cost(0.5, "estimated"), FinishReason.LENGTH)
    assert (done.structured, done.session_id, done.turn_id) == ({"a": 1}, "s", "t1")
    assert end_of(read(DONE)).cost is None
    assert end_of(read(replace(DONE, stop_reason="refusal"))).finish_reason is FinishReason.REFUSAL


def test_what_makes_a_stream_wait_is_told() -> None:
    overloaded = TurnError(kind="overloaded", message="busy")
    events = read(
        BackendRetry(delay_s=2.0, error=overloaded),
        RateLimit(status="rejected", limit_type="five_hour", retry_after_s=9.0),
        RateLimit(status="allowed_warning"),
        ApprovalRequested(approval_id="1:a", tool_name="Bash"),
        Notice(code="held", message="..."),
        Notice(code="adopted", message="..."),
    )
    assert events == [
        Waiting("retry: overloaded", 2.0),
        Waiting("rate_limit: five_hour", 9.0),
        Waiting("approval: Bash"),
        Waiting("held"),
    ]


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (TurnCompleted(outcome="interrupted", error=TurnError(kind="cancelled", message="stopped")), Cancelled),
        (TurnCompleted(outcome="interrupted"), Cancelled),
        (TurnCompleted(outcome="failed", error=TurnError(kind="refusal", message="no")), Refused),
        (TurnCompleted(outcome="failed", error=TurnError(kind="max_turns", message="enough")), Failed),
        (TurnCompleted(outcome="failed", delivery="uncertain", evidence={"transcript": "missing"}), Uncertain),
    ],
)
def test_an_end_without_an_answer_is_raised(end: TurnCompleted, kind: type[LLMError]) -> None:
    with pytest.raises(kind) as raised:
        read(end)
    assert raised.value.side_effects is (kind is Uncertain)


def test_a_failure_says_whether_a_tool_had_been_called() -> None:
    error = TurnError(kind="rate_limit", message="wait", retryable=True, retry_after_s=7.0)
    with pytest.raises(RateLimited) as raised:
        read(*call("m1", "u1"), TurnCompleted(outcome="failed", error=error))
    assert (raised.value.side_effects, raised.value.retry_after_s, raised.value.retryable) == (True, 7.0, True)


@pytest.mark.parametrize(("name", "did"), [("structured_then_529", False), ("tool_ok", True)])
def test_the_tool_that_takes_a_structured_answer_has_no_side_effects_so_a_failure_after_it_may_be_tried_again(
    name: str, did: bool
) -> None:
    error = TurnError(kind="overloaded", message="later", retryable=True)
    told = Recording.of(f"claude/{name}").events()
    with pytest.raises(Overloaded) as raised:
        read(*told, TurnCompleted(outcome="failed", error=error))
    assert raised.value.side_effects is did
    again = RetryPolicy().delay_s(raised.value, 1, chance=0.0, now=datetime.now(UTC))
    assert (again is None, falls_back(raised.value)) == (did, not did)


def test_an_answer_that_ran_into_the_limit_of_turns_is_one_that_says_so() -> None:
    error = TurnError(kind="max_turns", message="enough")
    events = read(text("m1", "So far."), TurnCompleted(outcome="failed", error=error))
    assert (end_of(events).text, end_of(events).finish_reason) == ("So far.", FinishReason.MAX_TURNS)


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_every_recording_of_a_real_cli_reads_as_answers(path: Path) -> None:
    """Words are streamed once and are in the messages; calls have results; no API would refuse the messages as a history."""
    reader, events = TurnReader(MODEL), []
    for decoded in Recording(path).decode():
        events += read(*decoded.events, reader=reader)
        if (end := decoded.terminal) is not None:
            events += read(TurnCompleted(outcome="completed", text=end.text or ""), reader=reader)
            _check(events)
            reader, events = TurnReader(MODEL), []


def _check(events: list[StreamEvent]) -> None:
    shown = ""
    for event in events:
        if isinstance(event, TextDelta) and event.parent is None:
            shown += event.text
        elif isinstance(event, Retracted):
            shown = ""
        elif isinstance(event, MessageDone) and event.parent is None:
            assert shown == event.message.text
            shown = ""
    messages = end_of(events).messages
    open_calls: set[str] = set()
    for message in messages:
        results = {block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock)}
        assert results <= open_calls
        open_calls -= results
        assert not (open_calls and results), "a call of the message before has no result"
        calls = [block for block in message.content if isinstance(block, ToolUseBlock)]
        open_calls |= {block.id for block in calls}
        assert not any(block.name.startswith("mcp__clisup__") for block in calls)
    assert not open_calls
