"""Thinking that led to calls goes back with their results, also where a program drops it, and within bounds."""

from __future__ import annotations

import pytest

from clisup.doors.gateway import kept_thinking
from clisup.doors.gateway.kept_thinking import KeptThinking
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolUseBlock

SIGNED = ThinkingBlock(text="I add.", signature="reasoning_content")


def calling(call: str, *before: ThinkingBlock) -> Message:
    return Message(role="assistant", content=(*before, ToolUseBlock(id=call, name="add", input={})))


def keeping(*calls: str) -> KeptThinking:
    kept = KeptThinking()
    for call in calls:
        said = calling(call, SIGNED)
        kept.keep([block for block in said.content if isinstance(block, ToolUseBlock)], said)
    return kept


def test_thinking_is_put_back_before_the_call_that_it_led_to_and_nowhere_else() -> None:
    sent = (Message.user("Go."), calling("a"), Message.user("3"), calling("other"))
    assert keeping("a").restored(sent) == (sent[0], calling("a", SIGNED), sent[2], sent[3])


def test_thinking_that_a_program_sends_itself_stays_as_it_is() -> None:
    own = calling("a", ThinkingBlock(text="own", signature="x"))
    assert keeping("a").restored([own]) == (own,)


def test_thinking_without_a_signature_and_answers_without_calls_are_not_kept() -> None:
    kept = KeptThinking()
    plain = calling("a", ThinkingBlock(text="hm"))
    kept.keep([block for block in plain.content if isinstance(block, ToolUseBlock)], plain)
    kept.keep([], Message(role="assistant", content=(SIGNED, TextBlock(text="3"))))
    assert kept.restored([calling("a")]) == (calling("a"),)


@pytest.mark.parametrize(("name", "limit"), [("MAX_KEPT", 2), ("MAX_KEPT_CHARS", 2 * len("I add.reasoning_content"))])
def test_the_oldest_thinking_is_dropped_beyond_a_limit(monkeypatch: pytest.MonkeyPatch, name: str, limit: int) -> None:
    monkeypatch.setattr(kept_thinking, name, limit)
    kept = keeping("a", "b", "a", "c")  # a is told again, so that b is the oldest
    assert [len(message.content) for message in kept.restored(map(calling, "abc"))] == [2, 1, 2]
