"""Answers of compatible servers in shapes that the field reports: each row is its pieces, and the answer that they mean."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from clisup.worker.apis.anthropic_api import events_of
from clisup.worker.apis.chat_stream import ChatStream
from clisup.worker.apis.events import ApiMessage, StreamError
from clisup.worker.apis.requests import chat_messages
from clisup.worker.apis.responses_stream import ResponsesStream
from tests.worker.streams import message

ADD, ARGUMENTS = "add", '{"a": 1, "b": 2}'
SIGNED = {"google": {"thought_signature": "SIG"}}


def call(
    index: int | None = 0, call_id: str | None = None, name: str | None = None, args: Any = None, **more: Any
) -> Any:
    """A delta with one piece of a call. What is None is not in it."""
    function = {key: value for key, value in {"name": name, "arguments": args}.items() if value is not None}
    piece = {key: value for key, value in {"index": index, "id": call_id}.items() if value is not None}
    return {"tool_calls": [{**piece, "type": "function", "function": function, **more}]}


class Row(NamedTuple):
    """Deltas, the finish reason, and the text, the thinking and the inputs of the calls that the answer has."""

    deltas: tuple[Any, ...]
    finish: str = "stop"
    text: str = ""
    thinking: str = ""
    calls: tuple[Any, ...] = ()
    stop: str = "end_turn"


ONE, TWO = {"a": 1, "b": 2}, {"a": 3, "b": 4}
CALLED: dict[str, Any] = {"finish": "tool_calls", "calls": (ONE,), "stop": "tool_use"}
CHAT = {
    "the name comes after the id (opencode#24137)": Row((call(call_id="a", args=""), call(name=ADD, args=ARGUMENTS)), **CALLED),
    "the id comes after the name (spring-ai#6762)": Row((call(name=ADD, args=""), call(call_id="a", args=ARGUMENTS)), **CALLED),
    "no id at all": Row((call(name=ADD, args=ARGUMENTS),), **CALLED),
    "id and name in each piece": Row(
        (call(call_id="a", name=ADD, args='{"a": 1,'), call(call_id="a", name=ADD, args=' "b": 2}')), **CALLED
    ),
    "another id in each piece": Row((call(call_id="a", name=ADD, args='{"a": 1,'), call(call_id="b", args=' "b": 2}')), **CALLED),
    "an empty object, then the arguments": Row((call(call_id="a", name=ADD, args="{}"), call(args=ARGUMENTS)), **CALLED),
    "arguments as an object (ollama)": Row((call(call_id="a", name=ADD, args=ONE),), **CALLED),
    "arguments null and empty": Row((call(call_id="a", name=ADD, args=""), call(args=ARGUMENTS), call(args="")), **CALLED),
    "one id for two calls (inference#4237)": Row(
        (call(0, "a", ADD, ARGUMENTS), call(1, "a", ADD, json.dumps(TWO))), **{**CALLED, "calls": (ONE, TWO)}
    ),
    "one index for two calls (ollama#15457)": Row(
        (call(0, "a", ADD, ARGUMENTS), call(0, "b", ADD, json.dumps(TWO))), **{**CALLED, "calls": (ONE, TWO)}
    ),
    "neither index nor id for two calls": Row(
        (call(None, None, ADD, ARGUMENTS), call(None, None, ADD, json.dumps(TWO))), **{**CALLED, "calls": (ONE, TWO)}
    ),
    "the reason of mlx-lm (mlx-lm#782)": Row((call(call_id="a", name=ADD, args=ARGUMENTS),), **{**CALLED, "finish": "tool_call"}),
    "a reason that nobody knows": Row((call(call_id="a", name=ADD, args=ARGUMENTS),), **{**CALLED, "finish": "done"}),
    "a call that is cut": Row((call(call_id="a", name=ADD, args='{"a": 1}'),), "length", calls=({"a": 1},), stop="max_tokens"),
    "a call before tools": Row(({"function_call": {"name": ADD, "arguments": ARGUMENTS}},), **{**CALLED, "finish": "function_call"}),
    "content in parts (symfony/ai#2422)": Row(
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}]},
         {"content": [{"type": "text", "text": "Hel"}]}, {"content": "lo."}), text="Hello.", thinking="hmm"),
    "one part without a list": Row(({"content": {"type": "text", "text": "Hello."}},), text="Hello."),
    "reasoning as an object": Row(({"reasoning": {"content": "hmm"}}, {"content": "Hello."}), text="Hello.", thinking="hmm"),
    "an end in capitals": Row(({"content": "Hello."},), "STOP", text="Hello."),
    "the end of a sequence": Row(({"content": "Hello."},), "eos_token", text="Hello."),
    "an unknown end of a text": Row(({"content": "Hello."},), "done", text="Hello.", stop="done"),
}  # fmt: skip


def told(answer: ApiMessage) -> tuple[str, str, tuple[Any, ...], str | None]:
    thinking = "".join(block["thinking"] for block in answer.content if block["type"] == "thinking")
    return answer.text, thinking, tuple(block["input"] for block in answer.calls), answer.stop_reason


@pytest.mark.parametrize("whole", [False, True], ids=["in pieces", "as a message"])
@pytest.mark.parametrize("name", CHAT)
def test_an_answer_of_a_compatible_server_means_what_its_pieces_mean(name: str, whole: bool) -> None:
    row, field = CHAT[name], "message" if whole else "delta"
    stream = ChatStream("m")
    events = []
    for at, delta in enumerate(row.deltas):
        last = row.finish if at == len(row.deltas) - 1 else None
        events += stream.take({"id": "c", "choices": [{"index": 0, field: delta, "finish_reason": last}]})
    answer = message([*events, *stream.end()])
    assert told(answer) == (row.text, row.thinking, row.calls, row.stop)
    ids = [block["id"] for block in answer.calls]
    assert all(ids) and len(set(ids)) == len(ids) and not answer.broken
    assert [block["name"] for block in answer.calls] == [ADD] * len(ids)


@pytest.mark.parametrize("word", ["error", "network_error", "cancelled", "timeout", "MALFORMED_FUNCTION_CALL"])
def test_half_an_answer_that_broke_off_is_none(word: str) -> None:
    stream = ChatStream("m")
    stream.take({"choices": [{"delta": {"content": "Half of the ans"}, "finish_reason": word}]})
    with pytest.raises(StreamError) as failed:
        stream.end()
    assert word in failed.value.message and failed.value.code == "server_error"


def test_what_a_server_needs_back_goes_back_as_it_came() -> None:
    stream, details = ChatStream("m"), [{"type": "reasoning.encrypted", "data": "ENC", "index": 0}]
    events = stream.take({"id": "c", "choices": [{"delta": {"reasoning_details": details[:1], "reasoning": "hmm"}}]})
    events += stream.take({"choices": [{"delta": call(call_id="a", name=ADD, args=ARGUMENTS, extra_content=SIGNED)}]})
    more = {"reasoning_details": [{"type": "reasoning.text", "text": "so"}]}
    events += stream.take({"choices": [{"delta": more, "finish_reason": "tool_calls"}]})
    content = message([*events, *stream.end()]).content
    (sent,) = chat_messages([{"role": "assistant", "content": content}], None)
    assert sent["tool_calls"][0]["extra_content"] == SIGNED
    assert sent["reasoning_details"] == [*details, {"type": "reasoning.text", "text": "so"}]
    assert sent["reasoning"] == "hmm"


def test_zeros_at_the_end_are_no_usage() -> None:
    stream = ChatStream("m")
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    events = stream.take({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "usage": usage})
    events += stream.take({"choices": [], "usage": dict.fromkeys(usage, 0)})
    assert message([*events, *stream.end()]).usage["output_tokens"] == 2


SAID = {"type": "message", "content": [{"type": "output_text", "text": "Hello."}]}
ADDS = {"type": "function_call", "call_id": "a", "name": ADD, "arguments": ARGUMENTS}
DONE = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [SAID, ADDS]}}
RESPONSES: dict[str, list[dict[str, Any]]] = {
    "nothing but the end": [DONE],
    "whole items": [{"type": "response.output_item.done", "output_index": 0, "item": SAID},
                    {"type": "response.output_item.done", "output_index": 1, "item": ADDS}, DONE],
    "pieces and whole items": [{"type": "response.output_text.delta", "output_index": 0, "delta": "Hello."},
                               {"type": "response.output_item.done", "output_index": 0, "item": SAID}, DONE],
    "a whole answer in place of a stream": [{"id": "r", "object": "response", "status": "completed", "output": [SAID, ADDS]}],
}  # fmt: skip


@pytest.mark.parametrize("name", RESPONSES)
def test_an_answer_of_responses_is_whole_without_pieces_and_told_once(name: str) -> None:
    stream = ResponsesStream("m")
    events = [event for item in RESPONSES[name] for event in stream.take(item)]
    assert told(message([*events, *stream.end()])) == ("Hello.", "", (ONE,), "tool_use")


def test_a_whole_message_of_anthropics_api_is_an_answer() -> None:
    content = [{"type": "text", "text": "Hello."}, {"type": "tool_use", "id": "", "name": ADD, "input": ONE},
               {"type": "tool_use", "id": "", "name": ADD, "input": TWO}]  # fmt: skip
    whole = {"id": "m", "type": "message", "content": content, "stop_reason": "tool_use", "usage": {"output_tokens": 3}}
    answer = message(events_of(whole))
    assert told(answer) == ("Hello.", "", (ONE, TWO), "tool_use")
    assert len({block["id"] for block in answer.calls} - {""}) == 2 and answer.usage["output_tokens"] == 3
