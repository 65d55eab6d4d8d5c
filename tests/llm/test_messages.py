"""What can be asked of a message."""

from __future__ import annotations

from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock


def test_a_message_gives_its_text_and_its_calls_in_order() -> None:
    one, two = (ToolUseBlock(id=id_, name="add", input={"a": 1}) for id_ in ("one", "two"))
    said = Message.assistant([ThinkingBlock(text="Hm."), TextBlock(text="Both "), one, TextBlock(text="at once."), two])
    assert said.text == "Both at once."
    assert said.tool_uses == (one, two)


def test_an_answer_to_a_call_is_none() -> None:
    assert Message.user([ToolResultBlock(tool_use_id="one", content="3")]).tool_uses == ()
