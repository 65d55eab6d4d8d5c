"""What can be asked of a message."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, as_messages


def test_a_message_gives_its_text_and_its_calls_in_order() -> None:
    one, two = (ToolUseBlock(id=id_, name="add", input={"a": 1}) for id_ in ("one", "two"))
    said = Message.assistant([ThinkingBlock(text="Hm."), TextBlock(text="Both "), one, TextBlock(text="at once."), two])
    assert said.text == "Both at once."
    assert said.tool_uses == (one, two)


def test_an_answer_to_a_call_is_none() -> None:
    assert Message.user([ToolResultBlock(tool_use_id="one", content="3")]).tool_uses == ()


HI = Message.user("Hi")


@pytest.mark.parametrize(
    "prompt", ["Hi", HI, TextBlock(text="Hi"), [TextBlock(text="Hi")], [HI], (one for one in [HI])]
)
def test_a_prompt_is_a_text_a_message_blocks_or_a_conversation(prompt: Any) -> None:
    assert as_messages(prompt) == (HI,)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (None, "a value of type NoneType is not a message; give a text, blocks, or messages"),
        ({"role": "user", "content": "Hi"}, "a value of type dict is not a message"),
        ([{"role": "user", "content": "Hi"}], "a value of type dict is not a message"),
        (["Hi"], "a value of type str is not a message"),
        ([HI, TextBlock(text="Hi")], "a value of type TextBlock is not a message"),
        ([], "it is empty"),
        ([HI, Message.assistant("Hello.")], "the last message is not the user's"),
    ],
)
def test_what_is_no_prompt_is_refused_with_what_it_is(prompt: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=f"not a prompt: {why}"):
        as_messages(prompt)
