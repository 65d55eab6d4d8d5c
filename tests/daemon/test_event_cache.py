"""The newest events in memory: what a follower gets from there is what the journal holds, and there is a bound to it."""

from __future__ import annotations

import json

import pytest

from clisup.daemon.journal.event_cache import PIECE_BYTES, SESSION_BYTES, EventCache, RecentEvents
from clisup.model.journal import EventFrames


def batch(first: int, count: int, size: int = 10) -> list[bytes]:
    return [json.dumps({"seq": seq, "pad": "x" * size}).encode() + b"\n" for seq in range(first, first + count)]


def fill(recent: RecentEvents, first: int, count: int, size: int = 10) -> list[bytes]:
    events = batch(first, count, size)
    recent.add([EventFrames(first, first + count, b"".join(events))])
    return events


@pytest.fixture
def recent() -> RecentEvents:
    return RecentEvents(EventCache())


def test_a_follower_at_any_place_gets_all_that_came_after_it(recent: RecentEvents) -> None:
    events = [*fill(recent, 5, 3), *fill(recent, 8, 1), *fill(recent, 9, 4)]
    for seq in range(5, 13):
        assert recent.after(seq) == EventFrames(seq, 13, b"".join(events[seq - 5 :]))


def test_what_is_older_or_not_there_yet_is_left_to_the_journal(recent: RecentEvents) -> None:
    assert recent.after(1) is None
    assert not recent.has(1)
    fill(recent, 5, 3)
    assert recent.after(4) is None
    assert not recent.has(4)
    assert recent.after(8) is None  # nothing to give


def test_a_follower_that_keeps_up_gets_the_bytes_that_were_journaled(recent: RecentEvents) -> None:
    fill(recent, 1, 3)
    block = EventFrames(4, 5, b"".join(batch(4, 1)))
    recent.add([block])
    assert recent.after(4) is block


def test_a_piece_is_bounded_and_the_next_one_goes_on_behind_it(recent: RecentEvents) -> None:
    for first in range(1, 41, 4):
        fill(recent, first, 4, PIECE_BYTES // 8)
    seq, seen = 30, []
    while (found := recent.after(seq)) is not None:
        assert len(found.data) < 2 * PIECE_BYTES
        seen += [json.loads(line)["seq"] for line in found.lines]
        seq = found.end
    assert seen == list(range(30, 41))


def test_one_session_holds_no_more_than_its_part(recent: RecentEvents) -> None:
    for first in range(1, 200):
        fill(recent, first, 1, SESSION_BYTES // 10)
        assert recent.size <= SESSION_BYTES
    assert recent.has(199)
    assert not recent.has(100)


def test_a_block_over_the_part_is_kept_alone_until_the_next_one(recent: RecentEvents) -> None:
    fill(recent, 1, 1)
    fill(recent, 2, 1, 2 * SESSION_BYTES)
    assert not recent.has(1)
    assert recent.has(2)
    fill(recent, 3, 1)
    assert not recent.has(2)
    assert recent.size < SESSION_BYTES


def test_sessions_that_are_quiet_make_room_for_those_that_speak() -> None:
    cache = EventCache(limit=10_000)
    quiet, loud = RecentEvents(cache), RecentEvents(cache)
    fill(quiet, 1, 3, 2_000)
    for first in range(1, 5):
        fill(loud, first, 1, 1_000)
    assert quiet.size == 0
    assert quiet.after(1) is None
    assert cache.total == loud.size <= 10_000


def test_what_is_let_go_leaves_no_trace() -> None:
    cache = EventCache()
    recent = RecentEvents(cache)
    fill(recent, 1, 3)
    recent.clear()
    recent.clear()
    assert (cache.total, recent.size, recent.after(1)) == (0, 0, None)
    fill(recent, 10, 1)
    assert recent.has(10)
    assert not recent.has(3)


def test_what_one_session_keeps_no_other_one_has() -> None:
    cache = EventCache()
    one, other = RecentEvents(cache), RecentEvents(cache)
    fill(one, 1, 3)
    assert one.has(1) and not other.has(1)
    one.clear()
    fill(other, 7, 2)
    assert not one.has(7) and other.after(7) is not None
    fill(one, 4, 1)
    assert one.after(4) == EventFrames(4, 5, batch(4, 1)[0]) and other.has(7)
