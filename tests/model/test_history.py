"""Histories that a client tells: what a model's API could have been given is taken, anything else is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from clisup.model.prompts.history import MAX_MESSAGES, History, HistoryMessage, _check_answers, open_calls, sendable

HISTORY: TypeAdapter[list[HistoryMessage]] = TypeAdapter(History)
USE = {"type": "tool_use", "id": "u1", "name": "Grep", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "u1", "content": "found"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def model(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content[0] if isinstance(content[0], str) else list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def sent(*messages: dict[str, Any]) -> list[tuple[str, Any]]:
    """Roles, and texts or the types of blocks."""
    checked = HISTORY.validate_python(list(messages))
    return [
        (role, said if isinstance(said, str) else [block.type for block in said]) for role, said in sendable(checked)
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a"), model("b")],
        [user("a"), user(text("and")), model("b"), model("c")],
        [user("a"), model(text("look"), USE), user(RESULT, text("and this")), model("done")],
        [user("a"), model(USE, {**USE, "id": "u2"}), user({**RESULT, "tool_use_id": "u2"}, RESULT), model("done")],
        [user("a"), model({"type": "thinking", "text": "hm", "signature": "s"}, text("b"))],
        [user("a"), model({**text("b"), "cache": True})],
        [user("a"), model(text("look"), USE)],
    ],
)
def test_what_a_model_could_have_been_told_is_taken(messages: list[dict[str, Any]]) -> None:
    assert len(HISTORY.validate_python(messages)) == len(messages)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([model("b")], "begins with"),
        ([user("a")], "ends with"),
        ([user("a"), model("b"), user("c")], "ends with"),
        ([user(" \n"), model("b")], "nothing to send"),
        ([user("a"), model({"type": "thinking", "text": "hm"})], "nothing to send"),
        ([user("a"), model(USE), user("no"), model("b")], "'u1'"),
        ([user("a"), model(USE), model("b")], "'u1'"),
        ([user("a"), model(USE), user(RESULT, RESULT), model("b")], "'u1'"),
        ([user("a"), model("b"), user(RESULT), model("c")], "message 2 has a tool_result for 'u1'"),
        ([user(RESULT), model("c")], "message 0 has a tool_result"),
        ([user("a"), model(USE), user(RESULT), model(USE), user(RESULT), model("c")], "of an earlier message"),
        ([user(USE), model("b")], "message 0 is the user's and cannot hold a block of type tool_use"),
        ([user("a"), model(RESULT)], "message 1 is the assistant's"),
        ([user("a"), {"role": "system", "content": "b"}], "role"),
        ([user("a"), model({"type": "image", "media_type": "image/png", "data": "eHg="})], "no image"),
        ([user("a"), model({"type": "text", "text": "b", "more": 1})], "more"),
        ([user("a"), model("b")] * (MAX_MESSAGES // 2 + 1), "20000"),
    ],
)
def test_anything_else_is_refused_and_named(messages: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        HISTORY.validate_python(messages)
    assert why in str(caught.value)


def test_the_calls_that_the_next_prompt_has_to_answer_are_named() -> None:
    other = {**USE, "id": "u2"}
    assert open_calls(HISTORY.validate_python([user("a"), model(text("look"), USE, other)])) == ["u1", "u2"]
    assert open_calls(HISTORY.validate_python([user("a"), model(USE), user(RESULT), model("b")])) == []
    assert open_calls([]) == []


def test_what_no_api_takes_again_is_left_out() -> None:
    thought, signed = {"type": "thinking", "text": "hm"}, {"type": "thinking", "text": "hm", "signature": "s"}
    assert sent(user("a"), model(thought, text("\n\n"), text("b"))) == [("user", "a"), ("assistant", ["text"])]
    assert sent(user("a"), model(signed, text("b"))) == [("user", "a"), ("assistant", ["thinking", "text"])]
    blank = [model(thought), model(signed), user(" "), user(text(""), text("\t"))]
    assert sent(user("a"), *blank, model("b")) == [("user", "a"), ("assistant", "b")]


def test_images_are_found_in_results_of_tools_too() -> None:
    png = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgoAAA=="}
    messages = [user(png), model(USE), user({**RESULT, "content": [png, text("x")]}), model("b")]
    checked = HISTORY.validate_python(messages)
    assert [image.size for message in checked for image in message.images] == [10, 10]


def test_a_message_of_many_results_is_looked_through_once() -> None:
    """A frame holds more than a hundred thousand of them: each with each would hold every client up for minutes."""
    compared = 0

    class Id(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    many = 400
    _check_answers(2, dict.fromkeys(Id(f"u{n}") for n in range(many)), [Id(f"u{n}") for n in range(many)])
    assert compared < 10 * many
