"""Estimates of tokens: from bytes, never less for more."""

from __future__ import annotations

from conversation_samples import MESSAGES, result
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.llm.conversation.context import IMAGE_TOKENS, MESSAGE_TOKENS, estimate_tokens, text_tokens
from clisup.llm.memory import WorkingMemory
from clisup.llm.messages import ImageBlock, Message, TextBlock, ToolUseBlock

QUICK = settings(max_examples=100)
PNG = ImageBlock(media_type="image/png", data="A" * 100_000)


def test_a_text_has_a_token_for_each_three_and_a_half_bytes() -> None:
    assert [text_tokens(text) for text in ("", "a", "a" * 7, "a" * 8, "\u00e9" * 7, "\ud83d")] == [0, 1, 2, 3, 4, 1]


def test_an_image_counts_by_its_size_on_the_screen_and_not_in_bytes() -> None:
    assert estimate_tokens([Message.user([PNG])]) == IMAGE_TOKENS + MESSAGE_TOKENS


def test_calls_and_results_count_with_their_json() -> None:
    use = ToolUseBlock(id="a", name="read", input={"path": "x" * 70})
    assert estimate_tokens([Message.assistant([use])]) > 20
    assert estimate_tokens([Message.user([result("a", "y" * 700)])]) > 200


def test_the_system_prompt_and_the_tools_count_too() -> None:
    bare = estimate_tokens(())
    assert bare == 0
    assert estimate_tokens((), system="x" * 350) == 100
    assert estimate_tokens((), tools=[WorkingMemory().tool()]) > 100


@QUICK
@given(MESSAGES, MESSAGES)
def test_more_messages_are_never_fewer_tokens(some: list[Message], more: list[Message]) -> None:
    assert estimate_tokens([*some, *more]) == estimate_tokens(some) + estimate_tokens(more)


@QUICK
@given(st.text(), st.text())
def test_a_longer_text_is_never_fewer_tokens(one: str, two: str) -> None:
    whole, first = (estimate_tokens([Message.user([TextBlock(text=text)])]) for text in (one + two, one))
    assert whole >= first
