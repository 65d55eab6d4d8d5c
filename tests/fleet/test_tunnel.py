"""Messages of a tunnel, and the rights of its frames."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.errors import WorldError
from clisup.fleet.tunnel import (
    FrameJoiner,
    TunnelAnswer,
    TunnelRequest,
    call_subject,
    check_frame,
    decode,
    denied,
    encode,
    fits,
    may_send,
    read_call,
    renamed,
)
from clisup.wire.methods import METHODS


def frame(method: str, id_: int | None = 1, **params: Any) -> bytes:
    whole = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(whole if id_ is None else {**whole, "id": id_}).encode() + b"\n"


def kind_of(answer: bytes | None) -> str:
    assert answer
    return str(json.loads(answer)["error"]["data"]["kind"])


@given(st.binary(max_size=200), st.integers(0, 2**40), st.booleans())
def test_a_message_comes_out_as_it_went_in(data: bytes, at: int, flag: bool) -> None:
    request = TunnelRequest("t", at=at, got=at, begin=flag, poll=not flag, close=flag)
    assert decode(encode(request, data), TunnelRequest) == (request, data)
    answer = TunnelAnswer(at=at, taken=at, end=flag)
    assert decode(encode(answer, data), TunnelAnswer) == (answer, data)


@pytest.mark.parametrize("message", [b"", b"{}\n", b"no json\n", b'{"tunnel":"t","v":2}\n', b"[" * 5000 + b"\n"])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(WorldError) as caught:
        decode(message, TunnelRequest)
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("method", sorted(METHODS))
def test_each_method_goes_by_its_class_or_stays_on_the_box(method: str) -> None:
    checked = check_frame(frame(method))
    if method.startswith(("bridge/", "tool/")) or method in (
        "daemon/shutdown",
        "daemon/restart",
        "daemon/reload",
        "daemon/gc",
    ):
        assert kind_of(checked.refusal) == "unsupported"
    else:
        assert (checked.access, checked.refusal) == (METHODS[method].role, None)


def test_what_would_leave_this_box_is_refused() -> None:
    assert kind_of(check_frame(frame("session/new", env={"A": "b"})).refusal) == "unsupported"
    assert kind_of(check_frame(frame("session/new", tools=[{}])).refusal) == "unsupported"
    assert check_frame(frame("session/new", cwd="/tmp")).refusal is None


def test_an_unknown_method_needs_the_right_to_drive() -> None:
    assert check_frame(frame("session/of-tomorrow")).access == "drive"


def test_a_frame_that_is_none_is_answered_here() -> None:
    assert kind_of(check_frame(b"no json\n").refusal) == "parse_error"
    assert check_frame(b'{"jsonrpc":"2.0","id":"d1","result":1}\n').refusal == b""


@pytest.mark.parametrize(
    ("roles", "may"),
    [
        ({"observer"}, ["observe"]),
        ({"worker"}, []),
        ({"operator"}, ["observe", "drive"]),
        ({"admin"}, ["observe", "drive", "admin"]),
        ({"worker", "operator"}, ["observe", "drive"]),
    ],
)
def test_a_role_may_send_its_classes(roles: set[str], may: list[str]) -> None:
    assert [access for access in ("observe", "drive", "admin") if may_send(access, frozenset(roles))] == may  # type: ignore[arg-type]


def test_a_frame_fits_a_call_of_its_own_class_or_a_higher_one() -> None:
    assert fits("observe", "drive")
    assert fits("drive", "drive")
    assert not fits("drive", "observe")
    assert not fits("admin", "drive")


def test_the_caller_is_the_last_part_of_the_subject() -> None:
    assert read_call(call_subject("dev1", "drive", "anna")) == ("drive", "anna")
    with pytest.raises(WorldError):
        read_call("clisup.rpc.dev1.anna")


def test_the_journal_learns_the_members_name() -> None:
    line = frame("initialize", protocol_version=1, client={"name": "clisup-run", "version": "1"})
    assert json.loads(renamed(line, "anna"))["params"]["client"] == {"name": "clisup-run of anna", "version": "1"}
    assert renamed(frame("ping"), "anna") == frame("ping")


def test_a_denied_notification_has_no_answer() -> None:
    assert denied(frame("session/prompt", None), "no", "") == b""
    assert kind_of(denied(frame("session/prompt"), "no", "ask")) == "permission_denied"


@given(st.lists(st.binary(max_size=20)), st.data())
def test_own_frames_stand_between_the_others(bodies: list[bytes], data: st.DataObject) -> None:
    """However the stream is cut, each own frame comes out whole, and the stream stays as it was."""
    lines = [b"x" + body.replace(b"\n", b"").replace(b"!", b"") + b"\n" for body in bodies]
    stream, joiner, out = b"".join(lines), FrameJoiner(), b""
    count = 0
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        out += joiner.feed(stream[:size])
        stream = stream[size:]
        if data.draw(st.booleans()):
            count += 1
            out += joiner.put(b"!own%d\n" % count)
    found = out.split(b"\n")[:-1]
    own = [line for line in found if line.startswith(b"!")]
    assert [line + b"\n" for line in found if not line.startswith(b"!")] == lines
    assert own == [b"!own%d" % number for number in range(1, len(own) + 1)]
    assert len(own) == count or not lines
