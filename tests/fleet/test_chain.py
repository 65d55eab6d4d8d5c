"""The chain of a session's chunks: each event once, in order, with the same bytes, or a told gap."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.errors import UsageError, WorldError
from clisup.fleet.chain import (
    CHUNK_BYTES,
    ELSEWHERE,
    REWOUND,
    Append,
    ChainReader,
    EventChunk,
    MissingEvents,
    Piece,
    Reread,
    StoredChunk,
    all_epochs,
    chunk_subject,
    is_rewound,
    next_step,
    read_chunk,
    read_subject,
)
from clisup.model.envelope import Envelopes
from clisup.model.events import ContentDelta
from clisup.model.journal import EventFrames, event_seq

MIB = 1024 * 1024


def line(seq: int, text: str = "hello", year: int = 2026) -> bytes:
    return Envelopes("s1", f"{year}-01-01T00:00:00Z").frame(ContentDelta(kind="text", text=text), seq, "t1", "backend")


def frames(first: int, *lines: bytes) -> EventFrames:
    return EventFrames(first, first + len(lines), b"".join(lines))


def stored(first: int, *lines: bytes, position: int = 7, epoch: int = 0) -> StoredChunk:
    return StoredChunk(epoch, position, EventChunk(first, first + len(lines) - 1, b"".join(lines)))


def appended(step: Append | Reread | None) -> Append:
    assert isinstance(step, Append)
    return step


# -- the copy ---------------------------------------------------------------------------------------------------------


def test_the_first_chunk_of_a_session_expects_an_empty_subject() -> None:
    held = [frames(1, line(1), line(2))]
    assert next_step(None, held, MIB) == Append(EventChunk(1, 2, line(1) + line(2)), 0)


def test_a_chunk_goes_behind_the_last_one_without_what_is_known() -> None:
    held = [frames(1, line(1), line(2), line(3))]
    assert next_step(stored(1, line(1), line(2)), held, MIB) == Append(EventChunk(3, 3, line(3)), 7)


def test_nothing_is_appended_that_the_engine_has() -> None:
    assert next_step(stored(1, line(1), line(2)), [frames(1, line(1), line(2))], MIB) is None
    assert next_step(stored(1, line(1)), [], MIB) is None


def test_a_hole_sends_the_copy_back_to_the_journal() -> None:
    assert next_step(stored(1, line(1)), [frames(5, line(5))], MIB) == Reread(1)
    assert next_step(None, [frames(2, line(2))], MIB) == Reread(0)


def test_pieces_that_follow_each_other_share_a_chunk_and_a_hole_between_them_ends_it() -> None:
    held = [frames(1, line(1)), frames(2, line(2)), frames(4, line(4))]
    assert appended(next_step(None, held, MIB)).chunk == EventChunk(1, 2, line(1) + line(2))
    assert next_step(stored(1, line(1), line(2)), held, MIB) == Reread(2)


def test_missing_events_are_a_chunk_of_their_own() -> None:
    held: list[Piece] = [MissingEvents(1, 10, "retention"), frames(10, line(10))]
    assert next_step(None, held, MIB) == Append(EventChunk(1, 9, b"", "retention"), 0)
    assert next_step(stored(1, line(1), line(2)), held, MIB) == Append(EventChunk(3, 9, b"", "retention"), 7)


def test_a_chunk_has_at_most_its_bytes_and_an_event_that_is_larger_is_alone() -> None:
    large = line(2, "x" * CHUNK_BYTES)
    held = [frames(1, line(1), large, line(3))]
    assert appended(next_step(None, held, MIB)).chunk == EventChunk(1, 1, line(1))
    assert appended(next_step(stored(1, line(1)), held, MIB)).chunk == EventChunk(2, 2, large)
    half = "x" * (CHUNK_BYTES // 2)
    cut = appended(next_step(None, [frames(1, line(1, half), line(2, half))], MIB)).chunk
    assert (cut.last, len(cut.data) <= CHUNK_BYTES) == (1, True)


def test_an_event_over_the_limit_of_the_engine_is_a_stub() -> None:
    chunk = appended(next_step(None, [frames(1, line(1, "x" * 3000), line(2))], 2048)).chunk
    stub, small = chunk.piece.lines if isinstance(chunk.piece, EventFrames) else ()
    assert b'"elsewhere":true' in stub
    assert b'"type":"content_delta"' in stub
    assert b'"ts":"2026-01-01T00:00:00Z"' in stub
    assert b"xxx" not in stub
    assert event_seq(stub) == 1
    assert small + b"\n" == line(2)


def test_a_journal_that_is_shorter_or_differs_at_the_last_copied_event_is_rewound() -> None:
    last = stored(1, line(1), line(2))
    assert not is_rewound(last, frames(2, line(2)))
    assert not is_rewound(last, frames(1, line(1), line(2), line(3)))
    assert is_rewound(last, frames(2, line(2, "another")))
    assert is_rewound(last, None)
    assert not is_rewound(last, MissingEvents(1, 5, "retention"))


def test_a_stub_in_the_chain_is_the_event_of_the_journal() -> None:
    large = line(1, "x" * 3000)
    chunk = appended(next_step(None, [frames(1, large)], 2048)).chunk
    assert not is_rewound(StoredChunk(0, 1, chunk), frames(1, large))
    assert is_rewound(StoredChunk(0, 1, chunk), frames(1, line(1, year=2027)))


# -- messages ---------------------------------------------------------------------------------------------------------


def test_a_chunk_survives_its_message() -> None:
    for chunk in (EventChunk(1, 2, line(1) + line(2)), EventChunk(3, 9, b"", "damaged")):
        assert read_chunk(chunk.headers, chunk.data) == chunk


def test_a_chunk_of_a_later_version_is_refused_and_says_so() -> None:
    with pytest.raises(WorldError, match="version '2'") as caught:
        read_chunk(EventChunk(1, 1, line(1)).headers | {"Clisup-V": "2"}, line(1))
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ({"Clisup-V": "1"}, b""),
        ({"Clisup-V": "1", "Clisup-First": "2", "Clisup-Last": "1"}, b""),
        ({"Clisup-V": "1", "Clisup-First": "0", "Clisup-Last": "1"}, b"a\nb\n"),
        ({"Clisup-V": "1", "Clisup-First": "1", "Clisup-Last": "2"}, b"a\n"),
        ({"Clisup-V": "1", "Clisup-First": "1", "Clisup-Last": "1"}, b"a\nb"),
        ({"Clisup-V": "1", "Clisup-First": "1", "Clisup-Last": "9" * 5000}, b"a\n"),
        ({"Clisup-V": "1", "Clisup-First": "1", "Clisup-Last": "1", "Clisup-Gap": "retention"}, b"a\n"),
    ],
)
def test_a_message_that_is_no_chunk_is_refused(headers: dict[str, str], data: bytes) -> None:
    with pytest.raises(WorldError) as caught:
        read_chunk(headers, data)
    assert caught.value.kind == "storage_failed"


def test_a_subject_names_member_session_and_epoch() -> None:
    assert chunk_subject("anna-dev1", "3f2a", 2) == "clisup.ev.anna-dev1.3f2a.2"
    assert all_epochs("anna-dev1", "3f2a") == "clisup.ev.anna-dev1.3f2a.*"
    assert read_subject("clisup.ev.anna-dev1.3f2a.2") == ("anna-dev1", "3f2a", 2)
    for name in ("", "a.b", "*", ">", "a b", "a\nb", "ä"):
        with pytest.raises(UsageError):
            chunk_subject("box", name)
    for subject in ("clisup.ev.a.b", "clisup.ev.a.b.c", "x.clisup.ev.a.b.1"):
        with pytest.raises(WorldError):
            read_subject(subject)


# -- the reader -------------------------------------------------------------------------------------------------------


def test_a_reader_drops_what_it_knows() -> None:
    reader = ChainReader(2)
    assert reader.read(0, EventChunk(1, 2, line(1) + line(2))) == []
    assert reader.read(0, EventChunk(2, 3, line(2) + line(3))) == [frames(3, line(3))]


def test_a_reader_tells_a_hole_and_a_gap_of_the_journal() -> None:
    reader = ChainReader()
    assert reader.read(0, EventChunk(3, 3, line(3))) == [MissingEvents(1, 3, ELSEWHERE), frames(3, line(3))]
    assert reader.read(0, EventChunk(2, 9, b"", "damaged")) == [MissingEvents(4, 10, "damaged")]


def test_a_reader_begins_again_with_a_new_epoch_and_leaves_the_earlier_one() -> None:
    reader = ChainReader()
    reader.read(0, EventChunk(1, 2, line(1) + line(2)))
    new = line(1, "new")
    assert reader.read(1, EventChunk(1, 1, new)) == [MissingEvents(1, 3, REWOUND), frames(1, new)]
    assert reader.read(0, EventChunk(3, 3, line(3))) == []
    assert ChainReader().read(4, EventChunk(1, 1, new)) == [frames(1, new)]


# -- every interleaving -----------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """Append under way: it may arrive at any later time, or never."""

    epoch: int
    append: Append


class Agent:
    """Copy of one session, as an agent makes it: it looks before each append and compares what it did not append."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        self.epoch, self.held, self.sent = 0, list[Piece](), None

    def feed(self, count: int) -> None:
        """The daemon sends the next events to this follower."""
        after = self.held[-1].end - 1 if self.held else self.last_seq()
        self.held += self.world.journal(after, count)

    def last_seq(self) -> int:
        found = self.world.last(self.epoch)
        return found.chunk.last if found else 0

    def step(self) -> Sent | None:
        """Look, compare, and return the append to send."""
        newest = self.world.stream[-1] if self.world.stream else None
        self.epoch = max(self.epoch, newest.epoch if newest else 0)
        while (last := self.world.last(self.epoch)) and is_rewound(last, self.world.own(last.chunk.last)):
            self.epoch, self.held = self.epoch + 1, []
        found = next_step(last, self.held, self.world.max_payload)
        if isinstance(found, Reread):
            self.held = self.world.journal(found.after, 1000)
            found = next_step(last, self.held, self.world.max_payload)
        return Sent(self.epoch, found) if isinstance(found, Append) else None


class World:
    """One session's journal, the stream, two agents of its box, and a reader that goes along."""

    max_payload = 1400

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.generation, self.floor = 0, 1
        self.stream: list[StoredChunk] = []
        self.flying: list[Sent] = []
        self.agents = [Agent(self), Agent(self)]
        self.lossy = False
        self.reader, self.place, self.read = ChainReader(), 0, dict[int, bytes | str]()

    def journal(self, after: int, count: int) -> list[Piece]:
        pieces = list[Piece]()
        if after + 1 < self.floor:
            pieces.append(MissingEvents(after + 1, self.floor, "retention"))
            after = self.floor - 1
        lines = self.lines[after : after + count]
        return [*pieces, frames(after + 1, *lines)] if lines else pieces

    def own(self, seq: int) -> Piece | None:
        if seq > len(self.lines):
            return None
        return self.journal(seq - 1, 1)[0]

    def last(self, epoch: int) -> StoredChunk | None:
        return next((item for item in reversed(self.stream) if item.epoch == epoch), None)

    # what happens

    def write(self, count: int) -> None:
        for _ in range(count):
            seq = len(self.lines) + 1
            text = "x" * (1500 if seq % 11 == 5 else 20 * (seq % 7))
            self.lines.append(line(seq, text, 2000 + self.generation))

    def forget(self, count: int) -> None:
        """Retention removes the oldest events."""
        self.floor = min(self.floor + count, max(1, len(self.lines)))

    def rewind(self, count: int) -> None:
        """The box loses its power and the end of its journal. Messages under way may still arrive."""
        del self.lines[max(self.floor, len(self.lines) - count) :]
        self.generation += 1
        for agent in self.agents:
            agent.restart()

    def arrive(self, index: int) -> None:
        sent = self.flying.pop(index % len(self.flying))
        last = self.last(sent.epoch)
        if sent.append.expected == (last.position if last else 0):
            position = self.stream[-1].position + 1 if self.stream else 1
            chunk = read_chunk(sent.append.chunk.headers, sent.append.chunk.data)
            self.stream.append(StoredChunk(sent.epoch, position, chunk))

    def lose(self, count: int) -> None:
        """The engine loses what it acknowledged. The reader notices that its place is gone, and begins again."""
        del self.stream[max(0, len(self.stream) - count) :]
        self.lossy = True
        self.reader, self.place, self.read = ChainReader(), 0, {}

    def follow(self, reader: ChainReader, place: int, known: dict[int, bytes | str]) -> int:
        for item in self.stream:
            if item.position > place:
                for piece in reader.read(item.epoch, item.chunk):
                    take(known, piece)
        return self.stream[-1].position if self.stream else 0

    def happen(self, what: str, number: int) -> None:
        agent = self.agents[number % 2]
        match what:
            case "write" | "forget" | "rewind" | "lose":
                getattr(self, what)(number)
            case "feed":
                agent.feed(number)
            case "step":
                if sent := agent.step():
                    self.flying.append(sent)
            case "twice":
                self.flying += self.flying[-1:]
            case "arrive":
                if self.flying:
                    self.arrive(number)
            case "drop":
                if self.flying:
                    self.flying.pop()
            case "restart":
                agent.restart()
            case "read":
                self.place = self.follow(self.reader, self.place, self.read)

    def settle(self) -> None:
        """Nothing fails any more: one agent copies the rest."""
        agent = self.agents[0]
        while self.flying:
            self.arrive(0)
        for _ in range(1000):
            agent.step()  # it may begin another epoch
            agent.feed(1000)
            sent = agent.step()
            if sent is None:
                return
            self.flying.append(sent)
            self.arrive(0)
        raise AssertionError("the copy comes to no end")


def take(known: dict[int, bytes | str], piece: Piece) -> None:
    """Take a piece as a client does: never twice the same seq, never an earlier one."""
    if isinstance(piece, MissingEvents) and piece.reason == REWOUND:
        assert set(known) == set(range(1, piece.end))
        known.clear()
        return
    assert piece.first == max(known, default=0) + 1
    assert piece.end > piece.first
    if isinstance(piece, MissingEvents):
        known.update(dict.fromkeys(range(piece.first, piece.end), piece.reason))
        return
    for text in piece.lines:
        seq = event_seq(text)
        assert seq == max(known, default=0) + 1
        known[seq] = text + b"\n"
    assert max(known) == piece.end - 1


def check(world: World, known: dict[int, bytes | str]) -> None:
    assert set(known) == set(range(1, len(world.lines) + 1))
    for seq, found in known.items():
        own = world.lines[seq - 1]
        if isinstance(found, str):
            assert (found == "retention" and seq < world.floor) or (found == ELSEWHERE and world.lossy)
        elif b'"elsewhere":true' in found:
            assert len(own) > world.max_payload - 512 or seq < world.floor
        else:
            assert found == own or seq < world.floor


HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "feed"]), st.integers(1, 9)),
        st.tuples(st.sampled_from(["step", "arrive", "step", "arrive", "read", "twice", "drop"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["restart", "forget", "rewind", "lose"]), st.integers(0, 4)),
    ),
    min_size=20,  # shorter lists are too quiet
    max_size=60,
)


@given(happenings=HAPPENINGS)
@settings(max_examples=300)
def test_every_reader_gets_each_event_once_or_a_told_gap(happenings: list[tuple[str, int]]) -> None:
    world = World()
    for what, number in happenings:
        world.happen(what, number)
    world.settle()
    world.follow(world.reader, world.place, world.read)
    check(world, world.read)
    fresh = dict[int, bytes | str]()
    world.follow(ChainReader(), 0, fresh)
    check(world, fresh)
