"""The rules of the wire: what is taken, what is refused and how, for any bytes in any pieces."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.errors import UsageError
from clisup.wire.jsonrpc import (
    ClientAnswer,
    FrameReader,
    FrameRefusal,
    Request,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    read_frame,
)

LIMIT = 4096


def error_of(item: Request | FrameRefusal) -> dict[str, Any]:
    assert isinstance(item, FrameRefusal), item
    assert item.answer.endswith(b"\n")
    answer = json.loads(item.answer)
    assert answer["jsonrpc"] == "2.0"
    return {"id": answer["id"], **answer["error"], "kind": answer["error"]["data"]["kind"]}


def kind_of(line: bytes) -> str:
    return str(error_of(read_frame(line))["kind"])


def frame(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", **members}).encode()


# -- what is taken ----------------------------------------------------------------------------------------------------


def test_a_request_has_an_id_a_method_and_params() -> None:
    assert read_frame(frame(params={"a": [1, None]})) == Request("ping", {"a": [1, None]}, 1)
    assert read_frame(b'{"method":"ping","id":"x"}') == Request("ping", {}, "x")


def test_a_frame_without_an_id_is_a_notification() -> None:
    assert read_frame(b'{"method":"$/cancel_request","params":{"id":3}}') == Request(
        "$/cancel_request", {"id": 3}, None
    )


@pytest.mark.parametrize("id_", [0, -1, 2**63, -(2**63), "", "x" * 256, "ü"])
def test_strings_and_integers_are_ids(id_: Any) -> None:
    item = read_frame(frame(id=id_))
    assert isinstance(item, Request)
    assert item.id == id_


def test_a_whole_surrogate_pair_is_a_character() -> None:
    item = read_frame(rb'{"id":1,"method":"m","params":{"a":"\ud83d\ude00 \\ud800"}}')
    assert item == Request("m", {"a": "😀 \\ud800"}, 1)


def test_a_frame_may_be_nested_two_hundred_levels_deep() -> None:
    assert isinstance(read_frame(b'{"id":1,"method":"m","params":' + b'{"a":' * 198 + b"{}" + b"}" * 199), Request)
    assert isinstance(read_frame(b'{"id":1,"method":"m","params":{"a":[' + b"{}," * 10_000 + b"{}]}}"), Request)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"id":1,"method":"m","params":{"a":' + b"[" * 99_000 + b"]" * 99_000 + b"}}", "nested too deeply"),
        (b'{"id":1,"method":"m","params":{"a":NaN}}', "NaN is not JSON"),
        (b'{"id":1,"method":"m","params":{"a":Infinity}}', "Infinity is not JSON"),
        (b'{"id":1,"method":"m","params":{"a":-Infinity}}', "-Infinity is not JSON"),
        ('{"id":1,"method":"m"}'.encode("utf-16"), "not UTF-8 at byte 0"),
        ('{"id":1,"method":"m"}'.encode("utf-16-le"), "at character 1"),
        (b'\xef\xbb\xbf{"id":1,"method":"m"}', "byte-order mark"),
        (rb'{"id":1,"method":"m","params":{"a":"\ud800"}}', "lone surrogate"),
        (rb'{"id":1,"method":"m","params":{"\uDFFF":1}}', "lone surrogate"),
        (b'{"id":1,"method":"m","params":{"a":"\xed\xa0\x80"}}', "not UTF-8"),
        (b'{"id":1,"id":2,"method":"m"}', "duplicate key"),
        (b'{"id":1,"method":"m","params":{"a":{"b":1,"b":1}}}', "duplicate key"),
        (b'{"id":1,"method":"m","params":{"a":' + b"9" * 5000 + b"}}", "a number is too long"),
        (b'{"id":1,"method":"m","params":{"a":1e400}}', "a number is too large"),
        (b'{"id":1,"method":"m","params":{"a":[-1E+999]}}', "a number is too large"),
        (b'{"id":1,"method":"m","params":' + b'{"a":' * 200 + b"1" + b"}" * 201, "nested too deeply"),
        (b"\x00", "at character 0"),
        (b'{"id":1,"method":"m"} {}', "at character"),
        (b"{'id':1}", "at character 1"),
    ],
)
def test_what_a_lax_reader_would_take_is_a_parse_error_with_its_reason(line: bytes, reason: str) -> None:
    error = error_of(read_frame(line))
    assert (error["id"], error["code"], error["kind"]) == (None, -32700, "parse_error")
    assert reason in error["message"]


@pytest.mark.parametrize("id_", [True, False, 1.0, 1.5, None, [], {}, "x" * 257, 2**64, 10**400])
def test_an_id_that_is_none_is_refused_without_an_id(id_: Any) -> None:
    error = error_of(read_frame(frame(id=id_)))
    assert (error["id"], error["kind"]) == (None, "invalid_request")


@pytest.mark.parametrize("line", [b"[]", b"[" + frame() + b"]", b"[" + b"1," * 10_000 + b"1]"])
def test_a_batch_is_refused_with_what_to_do_instead(line: bytes) -> None:
    error = error_of(read_frame(line))
    assert error["kind"] == "invalid_request"
    assert "each request on a line of its own" in error["message"]


@pytest.mark.parametrize(
    "line", [b"1", b'"x"', b"null", b"true", b"{}", frame(method=1), frame(jsonrpc="1.0"), b'{"id":5}']
)
def test_json_that_is_no_request_is_an_invalid_request(line: bytes) -> None:
    assert kind_of(line) == "invalid_request"


def test_a_refusal_carries_the_id_where_the_frame_had_a_good_one() -> None:
    assert error_of(read_frame(frame(method=None)))["id"] == 1
    assert error_of(read_frame(frame(extra=1, id="a")))["id"] == "a"


@pytest.mark.parametrize("params", [[], [1], None, "x", 5])
def test_params_are_an_object_or_absent(params: Any) -> None:
    error = error_of(read_frame(frame(params=params)))
    assert (error["id"], error["code"], error["kind"]) == (1, -32602, "invalid_params")


def test_an_unknown_member_is_named_but_never_quoted_at_length() -> None:
    error = error_of(read_frame(frame(**{"x" * 5000: 1})))
    assert "x" * 64 in error["message"]
    assert len(error["message"]) < 200


def test_no_refusal_quotes_what_the_client_sent() -> None:
    for line in (b'{"key":"canary-7f3a', b"canary-7f3a", frame(params="canary-7f3a"), frame(id=["canary-7f3a"])):
        item = read_frame(line)
        assert isinstance(item, FrameRefusal)
        assert b"canary" not in item.answer


# -- frames -----------------------------------------------------------------------------------------------------------


def fed(reader: FrameReader, chunks: Iterable[bytes]) -> list[Request | FrameRefusal]:
    """All items, each chunk fed when the ones before have given theirs; nothing after a fatal one."""
    items: list[Request | FrameRefusal] = []
    for chunk in chunks:
        reader.feed(chunk)
        while (item := reader.next()) is not None:
            items.append(item)
            if isinstance(item, FrameRefusal) and item.fatal:
                return items
    return items


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[a:b] for a, b in pairwise(places)]


frames = st.lists(
    st.sampled_from([frame(), b"", b" \t\r", b"{", b"\xff", frame(id=True), b"[]", frame(params={"a": "ü"}), b"null"])
)


@settings(max_examples=150)
@given(frames, st.lists(st.integers(0, 400)))
def test_any_split_of_the_bytes_gives_the_same_requests_and_refusals(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    whole = fed(FrameReader(LIMIT), [data])
    assert fed(FrameReader(LIMIT), split(data, cuts)) == whole
    assert len(whole) == sum(1 for line in lines if line.strip())


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
members = st.dictionaries(st.sampled_from(["id", "method", "params", "jsonrpc", "x"]), json_values, max_size=4)
noise = (
    st.binary(max_size=200)
    | members.map(lambda value: json.dumps(value).encode())
    | json_values.map(lambda value: json.dumps(value).encode())
)


@settings(max_examples=300)
@given(st.lists(noise, max_size=5), st.lists(st.integers(0, 1000), max_size=5))
def test_no_bytes_ever_raise_and_every_refusal_is_one_line_of_json(lines: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(LIMIT)
    for item in fed(reader, split(b"\n".join(lines) + b"\n", cuts)):
        if isinstance(item, FrameRefusal):
            assert item.answer.count(b"\n") == 1
            assert error_of(item)["code"] in (-32700, -32600, -32602)
        else:
            assert isinstance(item.method, str)
            assert isinstance(item.params, dict)


def test_a_blank_line_is_nothing() -> None:
    reader = FrameReader(LIMIT)
    assert fed(reader, [b"\n\r\n  \n"]) == []
    assert not reader.held


def test_half_a_frame_is_held_until_its_end_comes() -> None:
    reader = FrameReader(LIMIT)
    assert fed(reader, [frame()[:9]]) == []
    assert (reader.held, reader.ready) == (9, False)
    assert fed(reader, [frame()[9:] + b"\n"]) == [Request("ping", {}, 1)]
    assert not reader.held


def test_frames_are_read_one_at_a_time_and_those_behind_stay_bytes() -> None:
    reader = FrameReader(LIMIT)
    reader.feed(b"\n \r\n" + frame(id=1) + b"\n\n{\n" + frame(id=2)[:-1])
    assert reader.next() == Request("ping", {}, 1)
    assert (reader.ready, reader.held) == (True, 2 + len(frame(id=2)) - 1)
    assert isinstance(reader.next(), FrameRefusal)
    assert reader.next() is None
    reader.feed(b"}\n")
    assert reader.next() == Request("ping", {}, 2)
    assert reader.next() is None


def test_a_read_full_of_newlines_or_of_tiny_frames_costs_its_bytes() -> None:
    """Were each taken from the front by a copy of the rest, this would take minutes and not a moment."""
    reader = FrameReader(64 * 1024 * 1024)
    reader.feed(b"\n \t\r\n" * 4_000_000)
    assert not reader.held
    reader.feed(b" {\n" * 60_000)
    reader.feed(b"x" * 30_000_000)
    taken = 0
    while reader.next() is not None:
        taken += 1
    assert taken == 60_000
    for _ in range(100_000):
        reader.feed(b"xy")
        assert not reader.ready


@pytest.mark.fault(45)
@pytest.mark.parametrize("newline", [b"", b"\n"])
@pytest.mark.parametrize("pieces", [1, 7])
def test_an_oversized_frame_is_refused_and_ends_the_connection(newline: bytes, pieces: int) -> None:
    size = LIMIT + 1
    chunks = [b"x" * (size // pieces)] * (pieces - 1)
    chunks.append(b"x" * (size - sum(map(len, chunks))) + newline)
    [item] = fed(FrameReader(LIMIT), chunks)
    error = error_of(item)
    assert isinstance(item, FrameRefusal)
    assert item.fatal
    assert (error["id"], error["kind"], error["data"]["limit"], error["data"]["value"]) == (
        None,
        "invalid_request",
        "max_frame_bytes",
        LIMIT,
    )


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    line = frame(params={"a": ""})
    line = frame(params={"a": "x" * (LIMIT - len(line))})
    assert len(line) == LIMIT
    assert isinstance(fed(FrameReader(LIMIT), [line + b"\n"])[0], Request)


def test_the_frames_before_an_oversized_one_are_still_served() -> None:
    items = fed(FrameReader(LIMIT), [frame() + b"\n" + b"x" * 9999])
    assert items[0] == Request("ping", {}, 1)
    assert isinstance(items[1], FrameRefusal)
    assert len(items) == 2


def test_only_an_oversized_frame_is_fatal() -> None:
    items = fed(FrameReader(LIMIT), [b"{\n[]\n" + frame(id=True) + b"\n"])
    assert [item.fatal for item in items if isinstance(item, FrameRefusal)] == [False, False, False]


def test_an_array_of_20_mb_is_refused_before_it_is_read() -> None:
    reader = FrameReader()
    chunk = b"[" + b"[]," * 21_845
    tracemalloc.start()
    try:
        items: list[Request | FrameRefusal] = []
        for _ in range(20 * 1024 * 1024 // len(chunk)):
            if items := fed(reader, [chunk]):
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [item.fatal for item in items if isinstance(item, FrameRefusal)] == [True]
    assert peak < 64 * 1024 * 1024


CROWD = b"[" + b"0," * 2000 + b"0]"


@pytest.mark.parametrize("id_", [7, "seven", '"params"'])
@pytest.mark.parametrize(
    "words",
    [
        b'{"id":%b,"method":"x","params":{"a":%b}}\n',
        b'{"jsonrpc":"2.0" , "method" : "x", "id":%b , "params":{"a":%b}}\n',
        b'{"id":%b,"params":{"a":%b},"method":"x"}\n',
    ],
)
def test_a_frame_of_too_many_values_is_refused_unread_under_its_own_id(id_: int | str, words: bytes) -> None:
    crowded = words % (json.dumps(id_).encode(), CROWD)
    refused, after = fed(FrameReader(max_values=1000), [crowded + frame(id=2) + b"\n"])
    assert isinstance(refused, FrameRefusal) and not refused.fatal
    answer = json.loads(refused.answer)
    assert (answer["id"], answer["error"]["data"]["kind"]) == (id_, "invalid_request")
    assert (answer["error"]["data"]["limit"], answer["error"]["data"]["value"]) == ("max_frame_values", 1000)
    assert isinstance(after, Request)


@pytest.mark.parametrize("head", [b'{"id":true,', b"{", b"[", b'{"id":"' + b"x" * 300 + b'",'])
def test_one_that_has_no_good_id_is_refused_without(head: bytes) -> None:
    (refused,) = fed(FrameReader(max_values=1000), [head + b'"method":"x","params":' + CROWD + b"}\n"])
    assert isinstance(refused, FrameRefusal) and json.loads(refused.answer)["id"] is None


def test_an_answer_of_the_clients_that_has_too_many_is_one_that_failed() -> None:
    (answer,) = fed(FrameReader(max_values=1000), [b'{"id":"d1","result":' + CROWD + b"}\n"])
    assert isinstance(answer, ClientAnswer) and (answer.id, answer.result) == ("d1", None)
    assert answer.error["message"] == "the frame has more than 1000 JSON values"


def test_a_text_is_one_value_whatever_stands_in_it() -> None:
    text = '[{",\\' * 5000
    (request,) = fed(
        FrameReader(max_values=1000), [json.dumps({"id": 1, "method": "x", "params": {"a": text}}).encode() + b"\n"]
    )
    assert request == Request("x", {"a": text}, 1)


def test_a_client_that_drips_bytes_costs_the_bytes_and_no_more() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        for _ in range(200_000):
            assert fed(reader, [b"xy"]) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", [7, 'a"b\\c\nü'])
def test_answers_are_one_line_each_and_carry_the_id(id_: int | str) -> None:
    result = encode_result(id_, b'{"ok":true}')
    assert json.loads(result) == {"jsonrpc": "2.0", "id": id_, "result": {"ok": True}}
    error = encode_error(id_, UsageError("cannot a\nb", hint="h", param="x"))
    assert json.loads(error)["error"]["data"] == {
        "kind": "invalid_params",
        "retryable": False,
        "hint": "h",
        "param": "x",
    }
    assert result.count(b"\n") == error.count(b"\n") == 1


def test_a_notification_holds_the_very_bytes_that_it_was_given() -> None:
    event = b'{"seq":1,  "odd" : "spacing"}'
    assert event in encode_notification("session/event", event)
    assert json.loads(encode_notification("session/event", event))["params"] == json.loads(event)


# -- requests of the daemon, and the client's answers -----------------------------------------------------------------


def test_a_request_of_ours_is_one_line_with_an_id() -> None:
    line = encode_request("d1", "tool/call", b'{"a":1}')
    assert json.loads(line) == {"jsonrpc": "2.0", "id": "d1", "method": "tool/call", "params": {"a": 1}}
    assert line.endswith(b"\n") and line.count(b"\n") == 1


@pytest.mark.parametrize("head", [{}, {"jsonrpc": "2.0"}])
def test_an_answer_of_the_clients_is_a_result_or_an_error_with_the_id(head: dict[str, Any]) -> None:
    def read(**members: Any) -> Any:
        return read_frame(json.dumps(head | members).encode())

    assert read(id="d1", result=None) == ClientAnswer("d1", None, None)
    assert read(id="d1", result={"content": "x"}) == ClientAnswer("d1", {"content": "x"}, None)
    assert read(id=2, error={"message": "no"}) == ClientAnswer(2, None, {"message": "no"})


@pytest.mark.parametrize(
    "members",
    [
        {"id": "d1"},
        {"result": 1},
        {"id": None, "result": 1},
        {"id": "d1", "result": 1, "error": {}},
        {"id": "d1", "result": 1, "more": 1},
        {"id": "d1", "result": 1, "jsonrpc": "1.0"},
    ],
)
def test_what_is_neither_a_request_nor_an_answer_is_refused(members: dict[str, Any]) -> None:
    assert isinstance(read_frame(json.dumps(members).encode()), FrameRefusal)
