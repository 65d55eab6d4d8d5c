"""The short way of lines that change nothing but the journal: the same journal as by the long one, to which all others are left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from lone_run import LoneRun

from clisup.backends.base import Carried
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.backends.qwen.decoder import QwenDecoder
from clisup.config.model import LimitsConfig
from clisup.daemon.runs.run_parts import RunSettings
from clisup.daemon.runs.stretch import Taken, take_stretch
from clisup.daemon.sessions.recorder import Item
from clisup.host import clock
from clisup.model.deltas import Delta, DeltaRow
from clisup.model.events import ContentDelta, MessageStop, ToolUse
from clisup.model.journal import Source
from clisup.model.lines.framing import Line
from clisup.model.sessions.ledger import Position, Turn
from clisup.ops.drift import LOOKS, LOOKS_SILENT, FrameSample
from clisup.policy.watchdog import TurnTimeouts
from tests.backends.recorded import PATHS, Recording, name_of

STOP = b'{"type":"stream_event","event":{"type":"message_stop"}}'
CALL = (
    b'{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"Bash","input":{}}]},'
    b'"parent_tool_use_id":null}'
)
SILENT = b'{"type":"stream_event","event":{"type":"content_block_stop","index":2}}'
START = b'{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}},"parent_tool_use_id":null}'
CLAUDE = [path for path in PATHS if path.parents[1].name == "claude"]


def line(text: str, kind: str = "text_delta", name: str = "text") -> bytes:
    return (
        b'{"type":"stream_event","event":{"type":"content_block_delta","index":2,"delta":{"type":"%b","%b":"%b"}},"uuid":"u"}'
        % (kind.encode(), name.encode(), text.encode())
    )


def settings() -> RunSettings:
    return RunSettings("s", 3, TurnTimeouts(), LimitsConfig(inline_bytes=1024), None, None, FrameSample(None))  # type: ignore[arg-type]


def decoder() -> ClaudeDecoder:
    made = ClaudeDecoder(Carried(0.0))
    made.decode(Line(0, len(START) + 1, START))
    return made


def only_row(taken: Taken | None) -> DeltaRow:
    assert taken is not None
    (row,) = taken.entries
    assert isinstance(row, DeltaRow)
    return row


def take(pieces: Sequence[bytes], at: int = 0, start: int = 100, turn: Turn | None = None) -> Taken | None:
    return take_stretch(pieces, at, start, turn or Turn("t1", run=3), settings(), decoder())


def test_a_row_goes_from_its_first_line_to_the_last_delta() -> None:
    pieces = [
        line("a"),
        line("bc"),
        line("{", "input_json_delta", "partial_json"),
        line("h", "thinking_delta", "thinking"),
    ]
    taken = take(pieces)
    row = only_row(taken)
    assert row.deltas == [
        Delta("text", "a", 2, "m1"),
        Delta("text", "bc", 2, "m1"),
        Delta("tool_input", "{", 2, "m1"),
        Delta("thinking", "h", 2, "m1"),
    ]
    ends = [100 + sum(len(piece) + 1 for piece in pieces[: n + 1]) for n in range(4)]
    assert (row.turn_id, row.run, row.starts, row.ends) == ("t1", 3, [100, *ends[:-1]], ends)
    assert taken is not None and (taken.lines, taken.end, taken.told) == (4, ends[-1], [])
    assert row.last == Source(3, "out", ends[2], ends[3], 0)


def test_a_stretch_may_begin_and_end_in_the_middle() -> None:
    taken = take([line("a"), line("b"), b'{"type":"result"}', line("c")], at=1, start=7)
    row = only_row(taken)
    assert [delta.text for delta in row.deltas] == ["b"]
    assert row.last == Source(3, "out", 7, 7 + len(line("b")) + 1, 0)
    assert taken is not None and (taken.lines, taken.end) == (1, 7 + len(line("b")) + 1)


def test_what_is_told_between_deltas_stands_between_them_with_the_place_of_its_line() -> None:
    pieces = [line("a"), CALL, SILENT, STOP, START, line("b")]
    places = [sum(len(piece) + 1 for piece in pieces[:n]) for n in range(7)]
    taken = take(pieces, start=0)
    assert taken is not None and (taken.lines, taken.end) == (6, places[6])
    first, message, call, stop, start, last = taken.entries
    assert isinstance(first, DeltaRow) and isinstance(last, DeltaRow)
    assert [row.deltas[0].text for row in (first, last)] == ["a", "b"]
    items = [item for item in (message, call, stop, start) if isinstance(item, Item)]
    assert [item.event.type for item in items] == ["message", "tool_use", "message_stop", "message_start"]
    assert [(item.turn_id, item.memo) for item in items] == [("t1", None)] * 4
    sources = [Source(3, "out", places[1], places[2], 0), Source(3, "out", places[1], places[2], 1)]
    sources += [Source(3, "out", places[at], places[at + 1], 0) for at in (3, 4)]
    assert [item.src for item in items] == sources
    assert taken.told == [item.event for item in items]


def test_lines_that_say_nothing_do_not_part_a_row() -> None:
    pieces = [SILENT, line("a"), line(""), SILENT, line("s", "signature_delta", "signature"), line("b"), SILENT]
    taken = take(pieces, start=0)
    row = only_row(taken)
    places = [sum(len(piece) + 1 for piece in pieces[:n]) for n in range(8)]
    assert taken is not None and (taken.lines, taken.end) == (7, places[7])
    assert [delta.text for delta in row.deltas] == ["a", "b"]
    assert (row.starts, row.ends) == ([places[1], places[5]], [places[2], places[6]])


def test_a_stretch_of_silence_has_nothing_to_journal() -> None:
    assert take([SILENT, SILENT, b"{}"], start=0) == Taken(2, 2 * (len(SILENT) + 1), [], [])


def test_what_is_more_or_less_begins_no_stretch() -> None:
    for other in (
        b"",
        b"no json",
        line("\\ud83d"),  # half a character, which waits for its other half
        line("x", "a_new_delta"),
        line("x" * 2000),  # over the inline limit
        line("x")[:-3],
        b'{"type":"result","subtype":"success"}',
        b'{"type":"user","message":{"content":[{"type":"tool_result"}]}}',  # malformed: its call has no name
    ):
        assert take([other, line("a")]) is None, other


def test_the_other_half_of_a_character_begins_no_stretch_either() -> None:
    made = decoder()
    half = line("\\ud83d")
    assert not made.decode(Line(0, len(half) + 1, half)).events
    assert take_stretch([line("\\ude00!")], 0, 100, Turn("t1", run=3), settings(), made) is None


def test_a_delta_before_any_message_begins_no_stretch() -> None:
    assert take_stretch([line("a")], 0, 0, Turn("t1", run=3), settings(), ClaudeDecoder(Carried(0.0))) is None


def test_what_may_be_journaled_already_begins_no_stretch() -> None:
    pieces = [line("a"), line("b")]
    end = 100 + len(pieces[0]) + 1
    turn = Turn("t1", run=3, position={"out": Position(100, end, 0)})
    assert take(pieces, 0, 100, turn) is None
    assert take(pieces, 1, end, turn) is not None


def test_the_watch_over_drift_sees_some_deltas_and_lines_that_say_nothing() -> None:
    """A short turn has no more of these than are looked at."""
    own = settings()
    own.frames._known = {f"stream_event/content_block_{name}": frozenset() for name in ("delta/text_delta", "stop")}
    pieces = [line("a"), SILENT, line("b"), line("")] * 40
    assert take_stretch(pieces, 0, 0, Turn("t1", run=3), own, decoder()) is not None
    delta, stop = "stream_event/content_block_delta/text_delta: type", "stream_event/content_block_stop: type"
    assert (own.frames.fields[delta], own.frames.fields[stop]) == (LOOKS + LOOKS_SILENT // 2, LOOKS_SILENT // 2)
    assert own.frames.has_enough(ContentDelta) and own.frames.has_enough(None)


def test_the_watch_over_drift_sees_some_lines_of_each_kind_that_is_told() -> None:
    """Those before the third are compared with what is known of their kind."""
    own = settings()
    unknown = b'{"type":"stream_event","event":{"type":"message_stop"},"brand_new":1}'
    own.frames._known = {"stream_event/message_stop": frozenset({"type", "event", "event.type"})}
    assert take_stretch([unknown, line("a"), *[unknown] * 4], 0, 0, Turn("t1", run=3), own, decoder()) is not None
    assert own.frames.fields == {"stream_event/message_stop: brand_new": 3}
    assert own.frames.has_enough(MessageStop) and not own.frames.has_enough(ToolUse)


def test_a_decoder_that_looks_at_each_delta_has_no_stretches() -> None:
    made = QwenDecoder(Carried(0.0))
    made.decode(Line(0, len(START) + 1, START))
    assert take_stretch([line("a")], 0, 0, Turn("t1", run=3), settings(), made) is None


def lone(recording: Recording, journal: Sequence[bytes] = (), *, by_stretch: bool) -> LoneRun:
    """Nobody hands it prompts: in a live process's recording each turn but the first begins by itself."""
    request = replace(recording.request, live=recording.path.stem.startswith("live_"))
    return LoneRun(recording.adapter, request, recording.carried, journal, by_stretch=by_stretch)


def in_reads(data: bytes, chance: random.Random) -> list[bytes]:
    """`data` as it may come: all at once, by the line, or cut anywhere."""
    if (size := chance.choice([len(data), 0, 3000, 20000])) == 0:
        return data.splitlines(keepends=True)
    places = [0]
    while places[-1] < len(data):
        places.append(places[-1] + chance.randint(1, max(size, 1)))
    return [data[start:end] for start, end in pairwise(places)]


@pytest.fixture
def same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "timestamp", lambda: "2026-01-01T00:00:00.000000Z")


def check_both_ways(recording: Recording, reads: Sequence[bytes], end_at: int | None = None) -> None:
    async def both() -> None:
        long, short = lone(recording, by_stretch=False), lone(recording, by_stretch=True)
        for at, data in enumerate(reads):
            if at == end_at:
                long.end()
                short.end()
            await long.take(data)
            await short.take(data)
            assert short.look() == long.look()

    trio.run(both)


@pytest.mark.usefixtures("same_time")
@pytest.mark.parametrize("path", CLAUDE, ids=name_of)
def test_a_run_is_the_same_after_each_read_either_way(path: Path) -> None:
    check_both_ways(Recording(path), in_reads(path.read_bytes(), random.Random(path.stem)))


@pytest.mark.usefixtures("same_time")
@pytest.mark.parametrize(
    "path", [path for path in CLAUDE if path.read_bytes().count(b'"type":"result"') > 1], ids=name_of
)
def test_turns_begin_and_end_alike_where_no_init_tells_of_them(path: Path) -> None:
    """Their first word is in a line then that would go by the stretch in the middle of a turn."""
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if b'"subtype":"init"' not in line]
    check_both_ways(Recording(path), [b"".join(lines)])
    for end_at in range(0, len(lines), len(lines) // 8):
        check_both_ways(Recording(path), lines, end_at)


@pytest.mark.usefixtures("same_time")
@pytest.mark.parametrize("path", CLAUDE, ids=name_of)
def test_a_journal_cut_anywhere_becomes_the_same_again(path: Path) -> None:
    """As after a `kill -9` in the middle of a write: nothing is lost, nothing doubled, whichever way wrote it and reads on."""
    recording, chance, data = Recording(path), random.Random(path.stem), path.read_bytes()

    async def again() -> None:
        first = lone(recording, by_stretch=False)
        await first.take(data)
        for cut in chance.sample(range(3, len(first.journal) + 1), min(6, len(first.journal) - 2)):
            next_one = lone(recording, first.journal[:cut], by_stretch=True)
            for more in in_reads(data[next_one.begin :], chance):
                await next_one.take(more)
            assert next_one.journal == first.journal, f"cut after line {cut}"

    trio.run(again)
