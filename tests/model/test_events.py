"""The event vocabulary: what is journaled is what is read, byte for byte and field for field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.client.events import Envelope, UnknownEvent, envelope_of
from clisup.model.events import (
    EVENT_CLASSES,
    EVENT_TYPES,
    AssistantMessage,
    Block,
    EventBase,
    Notice,
    StderrLine,
    ToolProgress,
    ToolUse,
    TurnCompleted,
    TurnError,
)
from clisup.model.journal import event_seq, event_type, read_entries
from clisup.model.usage import Usage
from tests.journals import encode_event

HEAD: dict[str, Any] = {
    "session_id": "0d9c1c1e-0000-4000-8000-000000000000",
    "seq": 17,
    "ts": "2026-01-02T03:04:05.000006Z",
    "turn_id": "t3",
    "source": "backend",
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def encoded(event: EventBase, **head: Any) -> bytes:
    return encode_event(event, **{**HEAD, **head})


def parsed(raw: bytes) -> Envelope:
    return envelope_of(json.loads(raw))


def test_every_type_has_a_name_and_a_class_of_its_own() -> None:
    assert len(set(EVENT_TYPES)) == len(EVENT_TYPES) == len(EventBase.__subclasses__())


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_the_type_is_the_first_field_of_every_event(type_: str) -> None:
    cls = EVENT_CLASSES[type_]
    assert (cls.type, cls.__struct_config__.tag, cls.__struct_config__.tag_field) == (type_, type_, "type")


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_a_payload_names_fields_that_are_there_and_has_a_place_for_its_blob(type_: str) -> None:
    cls = EVENT_CLASSES[type_]
    assert set(cls.payload) <= set(cls.__struct_fields__)
    assert not cls.payload or "blob" in cls.__struct_fields__ or cls is AssistantMessage


@settings(max_examples=250)
@given(st.data())
def test_every_type_is_read_as_it_was_written(data: st.DataObject) -> None:
    cls = EVENT_CLASSES[data.draw(st.sampled_from(EVENT_TYPES))]
    event = data.draw(some(cls))
    raw = encoded(event)
    assert parsed(raw) == Envelope(**HEAD, event=event)  # type: ignore[arg-type]
    assert (event_seq(raw), event_type(raw), b"\n" in raw) == (17, event.type, False)
    assert read_entries(b'{"event":' + raw + b"}\n")[0][0].event == json.loads(raw)


def some(cls: type[EventBase]) -> st.SearchStrategy[EventBase]:
    """Any event of a class: what is `Any` in it is any JSON value, and floats are finite."""
    st.register_type_strategy(float, st.floats(0, 1e9))
    counts = st.none() | st.integers(0, 1 << 53)
    st.register_type_strategy(Usage, st.builds(Usage, input_tokens=counts, output_tokens=counts))
    st.register_type_strategy(TurnError, st.builds(TurnError))
    st.register_type_strategy(str, st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
    fields = {"structured": json_values} if cls is TurnCompleted else {}
    for name in ("input", "evidence"):
        if name in cls.__struct_fields__:
            fields[name] = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
    for name in ("mcp_servers", "suggestions", "survivors"):
        if name in cls.__struct_fields__:
            fields[name] = st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=2), max_size=2).map(
                tuple
            )
    if "blocks" in cls.__struct_fields__:
        block = st.builds(Block, text=st.none() | st.text(max_size=9), input=st.none() | st.just({"a": [None, 1]}))
        fields["blocks"] = st.lists(block, max_size=2).map(tuple)
    return st.builds(cls, **fields)


def test_a_field_that_is_null_is_left_out_but_null_inside_a_tools_input_stays() -> None:
    raw = json.loads(encoded(ToolUse(tool_use_id="u", name="Bash", input={"a": None, "b": [{"c": None}]})))
    assert set(raw) == {*HEAD, "type", "tool_use_id", "name", "input"}
    assert raw["input"] == {"a": None, "b": [{"c": None}]}


def test_the_envelope_comes_first_and_in_one_order() -> None:
    raw = encoded(Notice(code="c", message="m"), turn_id=None)
    assert raw == (
        b'{"session_id":"0d9c1c1e-0000-4000-8000-000000000000","seq":17,"ts":"2026-01-02T03:04:05.000006Z",'
        b'"turn_id":null,"source":"backend","type":"notice","code":"c","message":"m"}'
    )


@pytest.mark.fault(25)
def test_half_a_surrogate_pair_becomes_a_question_mark_and_is_no_fault() -> None:
    assert parsed(encoded(StderrLine(text="a\ud800b"))).event == StderrLine(text="a?b")
    event = AssistantMessage(blocks=(Block(kind="text", text="\udfff"), Block(kind="text", text="ü")))
    assert [block["text"] for block in json.loads(encoded(event))["blocks"]] == ["?", "ü"]
    raw = encoded(ToolUse(tool_use_id="u", name="Bash", input={"\ud800": ["\udc00", 1, None]}))
    assert json.loads(raw)["input"] == {"?": ["?", 1, None]}


@pytest.mark.parametrize("depth", [200, 300, 3000, 100_000])
def test_a_tool_input_that_is_nested_very_deep_is_written_and_read(depth: int) -> None:
    value: dict[str, Any] = {"end": "here"}
    for _ in range(depth):
        value = {"a": value}
    raw = encoded(ToolUse(tool_use_id="u", name="Bash", input=value))
    assert parsed(raw).event.type == "tool_use"
    if depth != 3000:  # Python 3.13 writes that depth, older ones do not
        assert (b"nested too deeply" in raw) == (depth > 1000)


def test_control_characters_and_line_separators_never_break_a_line() -> None:
    text = "a\r\n\x00\x0b\x1c\u0085\u2028b"
    raw = encoded(StderrLine(text=text))
    assert raw.splitlines() == [raw]
    assert parsed(raw).event == StderrLine(text=text)


def test_a_number_that_json_does_not_have_is_left_out_or_null() -> None:
    assert "NaN" not in encoded(ToolProgress(elapsed_s=float("nan"))).decode()
    raw = encoded(ToolUse(tool_use_id="u", name="x", input={"a": float("inf"), "big": 10**40}))
    assert json.loads(raw)["input"] == {"a": None, "big": 10**40}


def test_a_field_of_a_later_version_is_ignored_and_a_type_of_one_is_unknown() -> None:
    raw = json.loads(encoded(Notice(code="c", message="m")))
    assert envelope_of({**raw, "something_new": 1}).event == Notice(code="c", message="m")
    assert envelope_of({**raw, "type": "something_new"}).event == UnknownEvent(
        "something_new", {"code": "c", "message": "m"}
    )


@pytest.mark.parametrize("wrong", [{"message": None}, {"message": 3}, {"code": ["c"]}])
def test_an_event_with_a_value_of_another_type_is_unknown(wrong: dict[str, Any]) -> None:
    raw = json.loads(encoded(Notice(code="c", message="m"))) | wrong
    assert isinstance(envelope_of(raw).event, UnknownEvent)


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Notice(code="c", message="m").code = "d"  # type: ignore[misc]
