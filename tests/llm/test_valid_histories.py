"""Any messages are made fit for sending, and what is fit stays as it is."""

from __future__ import annotations

from conversation_samples import MESSAGES, assert_fit, result
from hypothesis import given, settings

from clisup.llm.histories import valid_history
from clisup.llm.messages import Message, ToolUseBlock

QUICK = settings(max_examples=80, deadline=None)


@QUICK
@given(MESSAGES)
def test_any_messages_are_made_fit_for_sending(messages: list[Message]) -> None:
    assert_fit(valid_history(messages))


@QUICK
@given(MESSAGES)
def test_what_is_fit_stays_as_it_is(messages: list[Message]) -> None:
    once = valid_history(messages)
    assert valid_history(once) == once


def test_ids_that_are_used_twice_are_made_unique_with_their_results() -> None:
    pair = (
        Message.assistant([ToolUseBlock(id="item_1", name="read", input={})]),
        Message.user([result("item_1")]),
    )
    messages = valid_history([Message.user("Go."), *pair, *pair, Message.assistant("Done.")])
    assert [block.id for m in messages for block in m.content if isinstance(block, ToolUseBlock)] == [
        "item_1",
        "item_1-2",
    ]
    assert_fit(messages)
