"""The short way of deltas: the same journal as by the long one, and whatever is more than a delta is left to that."""

from __future__ import annotations

from collections.abc import Sequence

from clisup.backends.base import Carried
from clisup.backends.claude_decoder import ClaudeDecoder
from clisup.backends.qwen_decoder import QwenDecoder
from clisup.core.config import LimitsConfig
from clisup.core.deltas import Delta
from clisup.core.drift import FrameSample
from clisup.core.events import ContentDelta
from clisup.core.framing import Line
from clisup.core.journal import Source
from clisup.core.ledger import Position, Turn
from clisup.core.watchdog import Timeouts
from clisup.daemon.deltas import Taken, take_row
from clisup.daemon.run_parts import RunSettings

STOP = b'{"type":"stream_event","event":{"type":"message_stop"}}'
SILENT = b'{"type":"stream_event","event":{"type":"content_block_stop","index":2}}'
START = b'{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}},"parent_tool_use_id":null}'


def line(text: str, kind: str = "text_delta", name: str = "text") -> bytes:
    return (
        b'{"type":"stream_event","event":{"type":"content_block_delta","index":2,"delta":{"type":"%b","%b":"%b"}},"uuid":"u"}'
        % (kind.encode(), name.encode(), text.encode())
    )


def settings() -> RunSettings:
    frames = FrameSample(None)
    for _ in range(3):
        frames.see(Line(0, 1, b""), (ContentDelta(kind="text", text="x"),))
    for _ in range(30):
        frames.see(Line(0, 1, b""), ())
    return RunSettings("s", 3, Timeouts(), LimitsConfig(inline_bytes=1024), None, None, frames)  # type: ignore[arg-type]


def decoder() -> ClaudeDecoder:
    made = ClaudeDecoder(Carried(0.0))
    made.decode(Line(0, len(START) + 1, START))
    return made


def take(pieces: Sequence[bytes], at: int = 0, start: int = 100, turn: Turn | None = None) -> Taken | None:
    return take_row(pieces, at, start, turn or Turn("t1", run=3), settings(), decoder())


def test_a_row_goes_from_its_first_line_to_the_last_delta() -> None:
    pieces = [
        line("a"),
        line("bc"),
        line("{", "input_json_delta", "partial_json"),
        line("h", "thinking_delta", "thinking"),
    ]
    taken = take(pieces)
    assert taken is not None and taken.row is not None
    row = taken.row
    assert row.deltas == [
        Delta("text", "a", 2, "m1"),
        Delta("text", "bc", 2, "m1"),
        Delta("tool_input", "{", 2, "m1"),
        Delta("thinking", "h", 2, "m1"),
    ]
    ends = [100 + sum(len(piece) + 1 for piece in pieces[: n + 1]) for n in range(4)]
    assert (row.turn_id, row.run, row.starts, row.ends) == ("t1", 3, [100, *ends[:-1]], ends)
    assert (taken.lines, taken.end) == (4, ends[-1])
    assert row.last == Source(3, "out", ends[2], ends[3], 0)


def test_a_row_may_begin_and_end_in_the_middle() -> None:
    taken = take([line("a"), line("b"), STOP, line("c")], at=1, start=7)
    assert taken is not None and taken.row is not None
    assert [delta.text for delta in taken.row.deltas] == ["b"]
    assert taken.row.last == Source(3, "out", 7, 7 + len(line("b")) + 1, 0)
    assert (taken.lines, taken.end) == (1, 7 + len(line("b")) + 1)


def test_lines_that_say_nothing_do_not_end_a_row() -> None:
    pieces = [SILENT, line("a"), line(""), SILENT, line("s", "signature_delta", "signature"), line("b"), SILENT]
    taken = take(pieces, start=0)
    assert taken is not None and taken.row is not None
    places = [sum(len(piece) + 1 for piece in pieces[:n]) for n in range(8)]
    assert (taken.lines, taken.end) == (7, places[7])
    assert [delta.text for delta in taken.row.deltas] == ["a", "b"]
    assert (taken.row.starts, taken.row.ends) == ([places[1], places[5]], [places[2], places[6]])


def test_a_row_of_silence_has_nothing_to_journal() -> None:
    assert take([SILENT, SILENT, STOP], start=0) == Taken(2, 2 * (len(SILENT) + 1), None)


def test_what_is_more_or_less_than_a_delta_begins_no_row() -> None:
    for other in (
        b"",
        b"no json",
        line("\\ud83d"),  # half a character, which waits for its other half
        line("x", "a_new_delta"),
        line("x" * 2000),  # over the inline limit
        line("x")[:-3],
        b'{"type":"result","subtype":"success"}',
    ):
        assert take([other, line("a")]) is None, other


def test_the_other_half_of_a_character_begins_no_row_either() -> None:
    made = decoder()
    half = line("\\ud83d")
    assert not made.decode(Line(0, len(half) + 1, half)).events
    assert take_row([line("\\ude00!")], 0, 100, Turn("t1", run=3), settings(), made) is None


def test_a_delta_before_any_message_begins_no_row() -> None:
    assert take_row([line("a")], 0, 0, Turn("t1", run=3), settings(), ClaudeDecoder(Carried(0.0))) is None


def test_what_may_be_journaled_already_begins_no_row() -> None:
    pieces = [line("a"), line("b")]
    end = 100 + len(pieces[0]) + 1
    turn = Turn("t1", run=3, position={"out": Position(100, end, 0)})
    assert take(pieces, 0, 100, turn) is None
    assert take(pieces, 1, end, turn) is not None


def test_the_watch_over_drift_sees_some_deltas_first() -> None:
    fresh = RunSettings("s", 3, Timeouts(), LimitsConfig(), None, None, FrameSample(None))  # type: ignore[arg-type]
    assert take_row([line("a")], 0, 0, Turn("t1", run=3), fresh, decoder()) is None


def test_a_decoder_that_looks_at_each_delta_has_no_rows() -> None:
    made = QwenDecoder(Carried(0.0))
    made.decode(Line(0, len(START) + 1, START))
    assert take_row([line("a")], 0, 0, Turn("t1", run=3), settings(), made) is None
