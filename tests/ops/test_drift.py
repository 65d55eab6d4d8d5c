"""What a CLI says that is unknown: counted, bounded, and kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from clisup.model.events import ContentDelta, EventBase, Notice, SessionInit, Unparsed
from clisup.model.lines.framing import Line
from clisup.ops import drift
from clisup.ops.drift import DriftBook, FrameSample, field_names, frame_name

KNOWN = {"text": frozenset({"type", "text"}), "init": frozenset({"type", "version"})}
DELTA = ContentDelta(message_id="m", index=0, kind="text", text="x")
UNKNOWN = Unparsed(reason="unknown_type", bytes=1)


def line(frame: Any) -> Line:
    data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    return Line(0, len(data) + 1, data)


def sample_of(*seen: tuple[Any, Sequence[EventBase]], known: Any = KNOWN) -> FrameSample:
    sample = FrameSample(known)
    for frame, events in seen:
        sample.see(line(frame), events)
    return sample


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ({"type": "result", "subtype": "success"}, "result/success"),
        ({"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"type": "text_delta"}}},
         "stream_event/content_block_delta/text_delta"),
        ({"type": "assistant", "message": {"type": "message", "id": "m"}}, "assistant"),
        ({"type": "item.completed", "item": {"type": "agent_message"}}, "item.completed/agent_message"),
        ({"method": "session/update", "params": {"update": {"sessionUpdate": "tool_call"}}}, "session/update/tool_call"),
        ({"id": 1, "result": {}}, "answer"),
        ({"id": 1, "error": {"code": 1}}, "error answer"),
        ({"type": "message", "role": "assistant"}, "message"),
        ({"type": 7}, "?"),
        ({"type": "x" * 500}, "x" * 200),
    ],
)  # fmt: skip
def test_a_frame_is_named_in_its_clis_own_words(frame: dict[str, Any], name: str) -> None:
    assert frame_name(frame) == name


def test_fields_of_objects_with_a_fixed_shape_count_and_no_key_that_a_user_or_a_model_chose() -> None:
    frame = {
        "type": "t",
        "usage": {"input": 1, "details": {"x": 1}},
        "modelUsage": {"some-model": {}},
        "input": {"path": 1},
    }
    assert set(field_names(frame)) == {"type", "usage", "usage.input", "usage.details", "modelUsage", "input"}


def test_unknown_frames_are_counted_by_name() -> None:
    odd = ({"type": "novel"}, [UNKNOWN])
    assert sample_of(odd, odd, ({"type": "text"}, [DELTA])).frames == {"novel": 2}


def test_a_known_frame_of_another_shape_is_drift_and_a_line_that_is_no_frame_is_none() -> None:
    broken = Unparsed(reason="malformed", bytes=1)
    seen = sample_of(({"type": "text"}, [broken]), (b"Warning: hello", [broken]), ({"a": 1}, [broken]), ([1], [broken]))
    assert seen.frames == {"text (of another shape)": 1}
    cut = Unparsed(reason="truncated", bytes=1)
    assert sample_of(({"type": "text"}, [cut])).frames == {}


def test_an_unknown_field_is_named_with_its_frame() -> None:
    assert sample_of(({"type": "text", "text": "x", "mood": "good"}, [DELTA])).fields == {"text: mood": 1}


def test_a_frame_that_no_recording_has_is_not_compared_and_neither_is_one_of_an_unknown_kind() -> None:
    assert sample_of(({"type": "rare", "x": 1}, [DELTA])).fields == {}
    assert sample_of(({"type": "text", "x": 1}, [DELTA]), known=None).fields == {}


def test_only_the_first_lines_of_each_kind_of_event_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    frame = drift._frame
    monkeypatch.setattr(drift, "_frame", lambda one: looked.append(one.data) or frame(one))
    many = [({"type": "text", "mood": "good"}, [DELTA])] * 1000
    assert sample_of(*many).fields == {"text: mood": drift.LOOKS}
    assert len(looked) == drift.LOOKS
    assert sample_of(*[({"type": "text", "mood": 1}, [])] * 1000).fields == {"text: mood": drift.LOOKS_SILENT}


def test_unknown_frames_without_end_are_counted_up_to_a_limit() -> None:
    assert sample_of(*[({"type": "novel"}, [UNKNOWN])] * (drift.MAX_UNPARSED + 5)).frames == {
        "novel": drift.MAX_UNPARSED
    }


def test_a_run_has_a_limit_of_lines_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "MAX_LOOKS", 2)
    seen = sample_of(
        *[({"type": "text", "mood": 1}, events) for events in ([], [DELTA], [Notice(code="c", message="m")])]
    )
    assert seen.fields == {"text: mood": 2}


def test_a_long_line_is_not_looked_at() -> None:
    assert sample_of(({"type": "text", "new": "x" * drift.MAX_LOOK_BYTES}, [DELTA])).fields == {}


def test_the_version_is_the_one_that_the_cli_says_of_itself() -> None:
    init = SessionInit(backend_version="2.1")
    assert sample_of(({"type": "init"}, [init])).version == "2.1"


def test_names_beyond_the_limit_are_not_kept() -> None:
    seen = sample_of(*[({"type": f"novel{n}"}, [UNKNOWN]) for n in range(drift.MAX_NAMES + 5)])
    assert len(seen.frames) == drift.MAX_NAMES


# -- the book ---------------------------------------------------------------------------------------------------------


def novel(*names: str) -> FrameSample:
    return sample_of(*[({"type": name}, [UNKNOWN]) for name in names])


def test_runs_add_up_by_kind_and_version_and_a_run_without_drift_adds_nothing() -> None:
    book = DriftBook()
    assert not book.add("claude", "1", sample_of(({"type": "text"}, [Notice(code="c", message="m")])), ts="t0")
    assert book.add("claude", "1", novel("a"), ts="t1")
    assert book.add("claude", "1", novel("a", "b"), ts="t2")
    assert book.add("claude", None, novel("a"), ts="t3")
    first, second = book
    assert (first.version, first.first_seen, first.last_seen, first.frames) == ("1", "t1", "t2", {"a": 2, "b": 1})
    assert second.version == "unknown"


def test_what_is_dumped_is_read_again_and_rubbish_is_left_out() -> None:
    book = DriftBook()
    book.add("claude", "1", novel("a"), ts="t1")
    stored = json.loads(json.dumps(book.dump()))
    assert list(DriftBook(stored)) == list(book)
    stored["entries"] += [
        7,
        {"kind": "x"},
        {**stored["entries"][0], "version": "2", "frames": {"a": "many"}},
    ]
    assert [(entry.version, entry.frames) for entry in DriftBook(stored)] == [("1", {"a": 1})]
    for rubbish in (None, {}, {"entries": {}}, {"entries": None}):
        assert list(DriftBook(rubbish)) == []


def test_the_book_keeps_the_versions_seen_last_and_counts_names_beyond_the_limit() -> None:
    book = DriftBook()
    book.add("claude", "old", novel("a"), ts="t")
    for n in range(drift.MAX_VERSIONS - 1):
        book.add("claude", str(n), novel("a"), ts="t")
    book.add("claude", "old", novel("a"), ts="t")
    book.add("claude", "new", novel("a"), ts="t")
    versions = [entry.version for entry in book]
    assert len(versions) == drift.MAX_VERSIONS and versions[-2:] == ["old", "new"] and "0" not in versions
    full = DriftBook()
    full.add("claude", "1", novel(*[f"n{n}" for n in range(drift.MAX_NAMES)]), ts="t")
    full.add("claude", "1", novel("n0", "one", "two"), ts="t")
    (entry,) = full
    assert (len(entry.frames), entry.frames["n0"], entry.more) == (drift.MAX_NAMES, 2, 2)
