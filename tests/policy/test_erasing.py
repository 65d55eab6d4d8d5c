"""What leaves a recording, however a CLI wrote it down, and what stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.policy.secrets.erasing import Eraser, machine_names
from clisup.policy.secrets.redact import Redactor

SECRET = 'pa"ss\\wörd-of-all'
KEY = "sk-ant-" + "abcdefghij0123456789"
NAMES = machine_names(
    home="/home/alice", user="alice", host="box7.corp.example", state_dir="/home/alice/.local/state/clisup"
)


def eraser(*secrets: str) -> Eraser:
    return Eraser(Redactor(secrets or [SECRET]), NAMES)


def erased(*frames: Any, data: bytes | None = None) -> list[Any]:
    out = eraser().lines(data if data is not None else lines(*frames)).data
    return [json.loads(line) for line in out.splitlines()]


def lines(*frames: Any) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def delta(text: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "stream_event", "uuid": f"{number:08}", "event": {"delta": {"text": text}}, **more}


def shown(frames: list[Any], **of: Any) -> str:
    return "".join(frame["event"]["delta"]["text"] for frame in frames if of.items() <= frame.items())


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(f"x{SECRET}y"),
        json.dumps(json.dumps({"key": SECRET})),
        json.dumps(json.dumps(json.dumps([SECRET], ensure_ascii=False))),
        '"' + "".join(f"\\u{ord(char):04x}" for char in SECRET) + '"',
        json.dumps("https://host/?k=pa%22ss%5Cw%C3%B6rd-of-all&b=1"),
        json.dumps({SECRET: 1}),
    ],
)
def test_a_known_value_is_found_however_json_escapes_it(written: str) -> None:
    (frame,) = erased(data=f'{{"a": {written}, "n": 1}}\n'.encode())
    assert frame["n"] == 1
    assert "[redacted]" in json.dumps(frame)
    assert "of-all" not in json.dumps(frame)


def test_a_line_in_which_nothing_is_found_keeps_its_bytes() -> None:
    data = b'{"n":1e400,  "x":-0.0, "x":"\\u0041", "t":"a\\/b"}\r\n\nnoise {"\n{"cut": "he'
    assert eraser().lines(data).data == data


def test_only_the_text_that_holds_a_secret_is_written_anew() -> None:
    data = lines({"a": f"x {KEY} y"}).replace(b"}", b', "n":1e400,  "t":"a\\/b"}')
    assert eraser().lines(data).data == b'{"a": "x [redacted] y", "n":1e400,  "t":"a\\/b"}\n'


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("secret", [SECRET, KEY, "Bearer abc.DEF/123+456"])
def test_a_secret_that_is_cut_into_deltas_is_found(secret: str, size: int) -> None:
    text = f"It is {secret} alright."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    frames = erased(*(delta(piece, at) for at, piece in enumerate(pieces)))
    assert len(frames) == len(pieces)
    told = "It is Bearer [redacted] alright." if secret.startswith("Bearer") else "It is [redacted] alright."
    assert shown(frames) == told


def test_streams_that_take_turns_are_told_apart_by_their_ids() -> None:
    one, two = f"A {KEY} a", f"B {SECRET} b"
    frames: list[Any] = []
    for at in range(max(len(one), len(two))):
        frames += [delta(one[at : at + 1], 2 * at, parent_id="p"), delta(two[at : at + 1], 2 * at + 1, parent_id="q")]
    done = erased(*frames)
    assert shown(done, parent_id="p") == "A [redacted] a"
    assert shown(done, parent_id="q") == "B [redacted] b"


def test_a_key_that_looks_whole_in_one_delta_and_goes_on_in_the_next_leaves_no_rest() -> None:
    frames = erased(delta(f"k {KEY}"), delta("KLMNOP and", 1), delta(" more", 2))
    assert shown(frames) == "k [redacted] and more"


def test_home_user_and_host_have_stable_names_also_in_slugs_and_deltas() -> None:
    text = "cd /home/alice/src on box7 (box7.corp.example), as alice; -home-alice-src; malice, alice7"
    wanted = "cd /home/user/src on host (host), as user; -home-user-src; malice, alice7"
    assert erased({"a": text}) == [{"a": wanted}]
    frames = erased(*(delta(text[at : at + 4], at) for at in range(0, len(text), 4)))
    assert shown(frames).startswith("cd /home/user/src on host")


def test_the_state_directory_is_named_before_the_home_that_it_lies_in() -> None:
    assert erased({"a": "/home/alice/.local/state/clisup/sessions/x"}) == [{"a": "/state/sessions/x"}]


def test_words_that_name_nobody_are_no_names() -> None:
    names = machine_names(home="/root", user="root", host="localhost")
    assert names == {"/root": "/home/user"}
    assert (
        Eraser(Redactor(), names).text("the root of --root in /root/x and /rooted")
        == "the root of --root in /home/user/x and /rooted"
    )
    assert machine_names(home="/", user="", host="") == {}


def test_what_is_no_json_is_erased_too() -> None:
    data = f'noise {KEY} in "/home/alice\nTraceback: {SECRET}\n{{"cut": "{KEY} and'.encode()
    out = eraser().lines(data).data.decode()
    assert out == 'noise [redacted] in "/home/user\nTraceback: [redacted]\n{"cut": "[redacted] and'


def test_bytes_that_are_no_utf8_stay_beside_a_secret() -> None:
    data = b'{"a": "\xff\xfe ' + KEY.encode() + b'"}\n'
    assert eraser().lines(data).data == b'{"a": "\xff\xfe [redacted]"}\n'


def test_ends_of_lines_are_told_where_they_are_now() -> None:
    data = lines({"a": KEY}, {"b": 1}, {"c": f"{SECRET} /home/alice"}) + b'{"cut'
    done = eraser().lines(data)
    for old, new in done.moved.items():
        assert done.data[:new].count(b"\n") == data[:old].count(b"\n")
    assert done.moved[len(data)] == len(done.data)
    assert len(done.moved) == 5


def test_replacements_are_counted() -> None:
    tool = eraser()
    tool.lines(lines({"a": f"{KEY} {SECRET}"}, delta(KEY[:9]), delta(KEY[9:], 1), {"b": "/home/alice"}))
    tool.value({"argv": ["alice", KEY], "n": 1})
    assert (tool.secrets, tool.names) == (4, 2)


FRAMES = st.lists(
    st.recursive(
        st.text(max_size=6)
        | st.sampled_from([SECRET, KEY, f" {SECRET}x", SECRET[:5], SECRET[5:], "/home/alice"])
        | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just(SECRET), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=6,
)


@given(FRAMES, st.booleans())
def test_json_stays_json_of_the_same_shape_and_no_secret_is_left(frames: list[Any], escaped: bool) -> None:
    data = b"".join(
        json.dumps(frame, ensure_ascii=escaped).encode("utf-8", "surrogatepass") + b"\n" for frame in frames
    )
    done = eraser().lines(data).data
    after = [json.loads(line.decode("utf-8", "surrogatepass")) for line in done.split(b"\n")[:-1]]
    assert [shape(frame) for frame in after] == [shape(frame) for frame in frames]
    for frame in after:
        text = json.dumps(frame, ensure_ascii=False)
        assert json.dumps(SECRET, ensure_ascii=False)[1:-1] not in text
        assert KEY not in text


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    return (
        [shape(item) for item in value]
        if isinstance(value, list)
        else "text"
        if isinstance(value, str)
        else repr(value)
    )
