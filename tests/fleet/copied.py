"""Comparison of a box's journals with their copy in the engine, byte for byte."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from clisup.fleet.chain import MissingEvents, _stub, read_chunk, read_subject
from clisup.fleet.engine import Engine
from clisup.model.envelope import FRAME_BEGIN
from clisup.model.journal import event_seq

Lines = dict[int, bytes]


class Difference(NamedTuple):
    """Counts of events: in journals, and in the copy missing, stored twice, with other bytes, or unknown to the journal.

    An event that was too large for the engine is the same as its stub. Seqs that a chunk reports as missing are no events.
    """

    events: int
    lost: int
    doubled: int
    differing: int
    extra: int


def journals(state_dir: Path) -> dict[str, Lines]:
    """Return the lines of all events of a state directory, by session and seq."""
    found = dict[str, Lines]()
    for journal in state_dir.glob("sessions/*/journal"):
        lines = found[journal.parent.name] = {}
        for segment in journal.glob("*.jsonl"):
            for line in segment.read_bytes().splitlines(keepends=True):
                if line.startswith(FRAME_BEGIN) and line.endswith(b"\n"):
                    lines[event_seq(line)] = line
    return found


class Copy(NamedTuple):
    """Present epochs of a member's sessions: lines by session and seq, and the number of seqs stored twice."""

    sessions: dict[str, Lines]
    doubled: int


async def copy_of(engine: Engine, member: str) -> Copy:
    """Read the copy of a member to its present end."""
    subject = f"clisup.ev.{member}.>"
    last = await engine.last(subject)
    epochs, sessions, doubled = dict[str, int](), dict[str, Lines](), 0
    if last is None:
        return Copy(sessions, 0)
    async with aclosing(engine.read(subject)) as messages:
        async for message in messages:
            _, id_, epoch = read_subject(message.subject)
            if epoch > epochs.get(id_, -1):
                epochs[id_], sessions[id_] = epoch, {}
            if epoch == epochs[id_]:
                chunk = read_chunk(message.headers, message.data)
                lines = sessions[id_]
                whole = [] if isinstance(chunk.piece, MissingEvents) else chunk.piece.lines
                for seq in range(chunk.first, chunk.last + 1):
                    doubled += seq in lines
                    lines[seq] = whole[seq - chunk.first] + b"\n" if whole else b""
            if message.position >= last.position:
                break
    return Copy(sessions, doubled)


def compare(own: dict[str, Lines], copy: Copy) -> Difference:
    """Compare journals with their copy."""
    events = lost = differing = extra = 0
    for id_, lines in own.items():
        there = copy.sessions.get(id_, {})
        events += len(lines)
        lost += len(lines.keys() - there.keys())
        differing += sum(there[seq] not in (line, _stub(line)) for seq, line in lines.items() if seq in there)
        extra += sum(line != b"" for seq, line in there.items() if seq not in lines)
    return Difference(events, lost, copy.doubled, differing, extra)


async def difference(engine: Engine, member: str, state_dir: Path) -> Difference:
    """Compare all journals of a state directory with the copy of a member, as both are now."""
    return compare(journals(state_dir), await copy_of(engine, member))


async def lost_lines(engine: Engine, member: str, state_dir: Path) -> list[str]:
    """Return a line for each session of a member with lost events."""
    own, copy = journals(state_dir), await copy_of(engine, member)
    return [
        f"{member}, session {id_}: {len(absent)} of {len(lines)} lost, the first is {lines[min(absent)][:300]!r}"
        for id_, lines in own.items()
        if (absent := lines.keys() - copy.sessions.get(id_, {}).keys())
    ]
