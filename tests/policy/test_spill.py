"""Payloads over the inline limit leave their event: the head stays, the whole is named, nothing is lost."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.events import (
    AssistantMessage,
    Block,
    ContentDelta,
    EventBase,
    StderrLine,
    ToolResult,
    ToolUse,
    Unparsed,
)
from clisup.model.lines.framing import Line
from clisup.policy.spill import Blob, is_over, raw_name, spill

LIMIT = 10_000
BIG = "ü" * (LIMIT + 1)


def spilled(event: EventBase, *, k: int = 0, limit: int = LIMIT, size: int = 1 << 20) -> tuple[Any, list[Blob]]:
    return spill(event, run=3, spool="out", line=Line(100, 100 + size, b""), k=k, limit=limit)


def test_an_event_at_the_limit_stays_whole() -> None:
    event = ToolResult(tool_use_id="u", content=BIG[:-1])
    assert spilled(event) == (event, [])


def test_a_large_text_keeps_its_head_and_names_the_whole() -> None:
    event, blobs = spilled(ToolResult(tool_use_id="u", content=BIG))
    assert (event.content, event.truncated) == (BIG[:4096], True)
    assert blobs == [Blob(event.blob, BIG.encode())]
    assert ToolResult(tool_use_id="u", content="x").truncated is False


def test_a_large_tool_input_becomes_its_head_as_text() -> None:
    value = {"file": BIG, "none": None}
    event, [blob] = spilled(ToolUse(tool_use_id="u", name="Write", input=value))
    assert event.input == {"_head": json.dumps(value, ensure_ascii=False)[:4096]}
    assert json.loads(blob.data) == value
    assert event.blob == blob.name


def test_each_large_block_of_a_message_has_a_blob_of_its_own_and_small_ones_stay() -> None:
    blocks = (
        Block(kind="text", text="small"),
        Block(kind="text", text=BIG),
        Block(kind="image", data=BIG),
        Block(kind="tool_use", name="Write", input={"x": BIG}),
    )
    event, blobs = spilled(AssistantMessage(blocks=blocks))
    assert event.blocks[0] == blocks[0]
    assert [block.blob for block in event.blocks] == [None, *(blob.name for blob in blobs)]
    assert len({blob.name for blob in blobs}) == 3
    assert blobs[0].data == blobs[1].data == BIG.encode()


def test_text_and_blocks_of_one_result_do_not_share_a_name() -> None:
    _, blobs = spilled(ToolResult(tool_use_id="u", content=BIG, blocks=(Block(kind="text", text=BIG),)))
    assert len({blob.name for blob in blobs}) == 2


def test_a_second_decoding_of_the_same_line_names_the_same_blobs_and_another_event_others() -> None:
    event = ContentDelta(kind="text", text=BIG)
    assert spilled(event) == spilled(event)
    assert spilled(event, k=0)[1][0].name != spilled(event, k=1)[1][0].name


def test_an_unparsed_line_names_its_place_in_the_spool_and_nothing_is_copied() -> None:
    event, blobs = spilled(Unparsed(reason="oversize", bytes=9))
    assert (event.blob, blobs) == ("raw-3-out-100-1048676", [])
    assert raw_name(3, "err", Line(1, 2, b"")) == "raw-3-err-1-2"


def test_an_event_without_a_payload_or_from_a_short_line_is_left_alone() -> None:
    assert spilled(StderrLine(text=BIG))[1] == []
    event = ToolUse(tool_use_id="u", name="Write", input={"x": "y"})
    assert spilled(event, limit=1024, size=1024)[0] is event


def test_a_tool_input_that_is_nested_very_deep_is_no_fault() -> None:
    value: dict[str, Any] = {"x": BIG}
    for _ in range(5000):
        value = {"a": value}
    event, [blob] = spilled(ToolUse(tool_use_id="u", name="Write", input=value))
    assert event.blob == blob.name


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9999) | st.text(st.characters(categories=["L"]), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(categories=["L"])), inner),
    max_leaves=20,
)


@settings(max_examples=100)
@given(json_values)
def test_the_size_is_about_that_of_the_json_and_never_less_for_text(value: Any) -> None:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert is_over(value, size - 3) and not is_over(value, 8 * size + 8)
