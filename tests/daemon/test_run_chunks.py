"""Lines that need no decision are taken by the chunk: the same journal as line by line."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from lone_run import LoneRun

from clisup.backends.base import Carried, Chunk
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.host import clock
from clisup.model.lines.framing import Line, LineFramer
from tests.backends.recorded import PATHS, Recording, name_of

STOP = b'{"type":"stream_event","event":{"type":"message_stop"}}'
SILENT = b'{"type":"stream_event","event":{"type":"content_block_stop","index":2}}'
START = b'{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}},"parent_tool_use_id":null}'
RESULT = b'{"type":"result","subtype":"success","is_error":false}'
CLAUDE = [path for path in PATHS if path.parents[1].name == "claude"]


def line(text: str) -> bytes:
    return (
        b'{"type":"stream_event","event":{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"%b"}}}'
        % text.encode()
    )


def chunk_of(*lines: bytes) -> tuple[Chunk, list[Line]]:
    """The first chunk of these lines, and the lines that it leaves."""
    waiting = iter(LineFramer().feed(b"".join(data + b"\n" for data in lines)))
    return ClaudeDecoder(Carried(0.0)).decode_chunk(waiting), list(waiting)


def types(chunk: Chunk) -> list[list[str]]:
    return [[event.type for event in events] for _, events in chunk.told]


def test_lines_that_need_no_decision_are_told_with_their_places() -> None:
    chunk, left = chunk_of(START, line("a"), SILENT, line("b"), STOP)
    assert types(chunk) == [["message_start"], ["content_delta"], [], ["content_delta"], ["message_stop"]]
    assert (chunk.line, chunk.decoded, left) == (None, None, [])
    assert [place.end for place, _ in chunk.told[:-1]] == [place.start for place, _ in chunk.told[1:]]


@pytest.mark.parametrize("other", [RESULT, b"no json", b'{"type":"system","subtype":"init","session_id":"s"}'])
def test_the_first_line_that_needs_a_decision_ends_the_chunk(other: bytes) -> None:
    chunk, left = chunk_of(START, line("a"), other, line("b"))
    assert types(chunk) == [["message_start"], ["content_delta"]]
    assert chunk.line is not None and chunk.line.data == other and chunk.decoded is not None
    assert [rest.data for rest in left] == [line("b")]


def lone(recording: Recording, journal: Sequence[bytes] = (), *, by_chunk: bool) -> LoneRun:
    """Nobody hands it prompts: in a live process's recording each turn but the first begins by itself."""
    request = replace(recording.request, live=recording.path.stem.startswith("live_"))
    return LoneRun(recording.adapter, request, recording.carried, journal, by_chunk=by_chunk)


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
        long, short = lone(recording, by_chunk=False), lone(recording, by_chunk=True)
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
    """Their first word is in a line then that needs no decision in the middle of a turn."""
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
        first = lone(recording, by_chunk=False)
        await first.take(data)
        for cut in chance.sample(range(3, len(first.journal) + 1), min(6, len(first.journal) - 2)):
            next_one = lone(recording, first.journal[:cut], by_chunk=True)
            for more in in_reads(data[next_one.begin :], chance):
                await next_one.take(more)
            assert next_one.journal == first.journal, f"cut after line {cut}"

    trio.run(again)
