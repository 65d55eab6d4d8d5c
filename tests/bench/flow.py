"""One flood of recorded frames through a daemon, or through something that it is compared with: how long, at what cost."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from clisup.backends.base import Carried
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.model.envelope import Envelopes
from clisup.model.journal import Source, blocks_of, encode_block
from clisup.model.lines.framing import Line, LineFramer
from tests.bench.bare import spoken
from tests.bench.frames import Mix
from tests.bench.native_programs import build
from tests.bench.place import PATIENCE_S, Gate, Place, Sinks, bounded, cpu_of, end, prompt_of
from tests.bench.stolen import Stolen

__all__ = ["Flow", "fanned_out", "parse", "through_daemon", "through_relay", "through_sdk", "typed"]

REFERENCE = Path(__file__).parent / "reference"
CHUNK = 64 * 1024
"""Bytes of a spool that a daemon reads at once."""
PARSED_S = 0.2
"""At least so long `orjson.loads` is measured, over the same lines again and again."""
SESSION, TIME = "0" * 36, "2026-01-01T00:00:00.000000Z"


class Flow(NamedTuple):
    """Seconds from the opening of the gate to the last line at the last client; seconds of processor time; what came; and the share of
    the processors that the hypervisor took meanwhile.
    """

    lines: int
    seconds: float
    cpu: float
    keepers: float = 0.0
    events: int = 0
    deliveries: int = 0
    stolen: float = 0.0

    @property
    def line_us(self) -> float:
        return self.cpu / self.lines * 1e6

    @property
    def event_us(self) -> float:
        return self.cpu / max(self.events, 1) * 1e6

    @property
    def rate(self) -> float:
        return self.lines / self.seconds


def through_daemon(at: Place, sessions: Sequence[str], mix: Mix, lines: int, clients: int = 1) -> Flow:
    """Each session says its part of the lines, in one turn. The ends of the turns are in the time and the cost."""
    part = max(lines // len(sessions), 1)
    at.gate.shut()
    with at.follow(len(sessions), clients) as sinks:
        for session in sessions:
            at.prompt(session, "flood", mix, part)
        at.all_running(len(sessions))
        before, stolen = cpu_of(at.pid), Stolen()
        begun = at.gate.open()
        seen = sinks.results()
        cpu, share = cpu_of(at.pid) - before, stolen.share()
    events = [result["events"] for result in seen]
    assert len(set(events)) == 1, f"the clients saw different numbers of events: {events}"
    seconds = (max(result["ended"] for result in seen) - begun) / 1e9
    return Flow(part * len(sessions), seconds, cpu, at.gate.spent()[1], events[0], sum(events), share)


def through_relay(scratch: Path, programs: Path, mix: Mix, lines: int, sessions: int) -> Flow:
    """The same through reference/relay.py: pipes of the fakes -> a file and a socket -> one client. Nothing is parsed."""
    part = lines // sessions
    fake, sink = build("fakecli", programs), build("sink", programs)
    gate, journal = Gate(scratch / "relay.gate"), scratch / "relay.journal"
    ours, theirs = socket.socketpair()
    relay = None
    try:
        with (
            spoken(fake, prompt_of("flood", gate, mix, part), sessions) as pipes,
            Sinks(sink, [("-", "-", "0")], theirs) as sinks,
        ):
            argv = [sys.executable, "-I", "-S", str(REFERENCE / "relay.py"), str(journal), *map(str, pipes)]
            relay = subprocess.Popen(argv, stdout=ours, stderr=subprocess.PIPE, pass_fds=pipes)
            ours.close()
            theirs.close()
            _await_init(journal, mix, sessions)
            stolen, begun = Stolen(), gate.open()
            with bounded([relay]):
                cpu = relay.communicate()[1]
            seen, share = sinks.results()[0], stolen.share()
    finally:
        end([relay] if relay else [])
        ours.close()
        theirs.close()
        gate.close()
        journal.unlink(missing_ok=True)
    assert seen["lines"] == (part + 2) * sessions, f"the relay lost lines: {seen['lines']} of {(part + 2) * sessions}"
    return Flow(part * sessions, (seen["ended"] - begun) / 1e9, float(cpu), stolen=share)


def _await_init(journal: Path, mix: Mix, sessions: int) -> None:
    """Until each of the fakes has said its first line, and so stands at the gate."""
    said = (len((mix.path / "init").read_bytes()) + 36 - len("@SESSION@")) * sessions
    until = time.monotonic() + PATIENCE_S
    while not journal.exists() or journal.stat().st_size < said:
        assert time.monotonic() < until, "the relay does not relay"
        time.sleep(0.01)


def through_sdk(scratch: Path, programs: Path, python: Path, mix: Mix, lines: int, sessions: int) -> Flow:
    """The same fakes read by claude-agent-sdk's `query()`, all in one process; no journal and no client behind it."""
    part, gate = lines // sessions, Gate(scratch / "sdk.gate")
    fake, prompt = build("fakecli", programs), prompt_of("flood", gate, mix, part)
    argv = [str(python), str(REFERENCE / "sdk_reader.py"), str(fake), str(PATIENCE_S), *([prompt] * sessions)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(scratch)}
    reader = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, cwd=scratch)
    try:
        assert reader.stdout is not None
        with bounded([reader]):
            assert reader.stdout.readline() == b"ready\n", "the SDK does not read the fake CLI"
            begun = gate.open()
            seen = json.loads(reader.communicate()[0])
    finally:
        end([reader])
        gate.close()
    return Flow(part * sessions, (seen["ended"] - begun) / 1e9, seen["cpu"], events=seen["messages"])


def parse(mix: Mix, lines: int) -> Flow:
    """`orjson.loads` of the same lines, in this process."""
    import orjson  # a development requirement, for this alone

    body = (mix.path / "body").read_bytes().splitlines()
    count, began, cpu = 0, time.monotonic(), time.process_time()
    while count < lines or time.monotonic() - began < PARSED_S:
        for line in body:
            orjson.loads(line)
        count += len(body)
    return Flow(count, time.monotonic() - began, time.process_time() - cpu)


def typed(mix: Mix, lines: int) -> Flow:
    """The same lines made events and lines of a journal by clisup's own decoder and encoders, in this process, and nothing else.

    No session, no turn, no file, no client: what the typed events cost that every client is promised, whoever makes them.
    """
    cut = LineFramer().feed((mix.path / "body").read_bytes())
    count, began, cpu = 0, time.monotonic(), time.process_time()
    while count < lines or time.monotonic() - began < PARSED_S:
        _typed(ClaudeDecoder(Carried(0.0)), Envelopes(SESSION, TIME), cut, count)
        count += len(cut)
    return Flow(count, time.monotonic() - began, time.process_time() - cpu)


def typed_alone(mix: Mix, lines: int, pause_s: float) -> float:
    """us of processor time of `typed` for a line that comes by itself, `pause_s` after the one before it; the median."""
    cut = LineFramer().feed((mix.path / "body").read_bytes())
    decoder, envelopes, spent = ClaudeDecoder(Carried(0.0)), Envelopes(SESSION, TIME), list[float]()
    while len(spent) < lines:
        for line in cut:
            time.sleep(pause_s)
            began = time.thread_time()
            _typed(decoder, envelopes, [line], len(spent))
            spent.append(time.thread_time() - began)
    return statistics.median(spent) * 1e6


def _typed(decoder: ClaudeDecoder, envelopes: Envelopes, cut: Sequence[Line], seq: int) -> list[bytes]:
    """Return the frames of these lines, after their blocks of a journal are made, too."""
    made, waiting = list[bytes](), iter(cut)
    while (chunk := decoder.decode_chunk(waiting)).told or chunk.line is not None:
        told = [*chunk.told]
        if chunk.line is not None and chunk.decoded is not None:
            told.append((chunk.line, chunk.decoded.events))
        frames, sources = list[bytes](), list[Source | None]()
        for line, events in told:
            for k, event in enumerate(events):
                frames.append(envelopes.frame(event, seq + len(made) + len(frames), "t1", "backend"))
                sources.append(Source(1, "out", line.start, line.end, k))
        for block in blocks_of(seq + len(made), frames, sources, {}):
            encode_block(block)
        made += frames
    return made


def fanned_out(programs: Path, mix: Mix, lines: int, clients: int) -> Flow:
    """`typed` by the chunk, and what a chunk gave written to so many clients: what the kernel takes for a copy to each, and what its
    copies leave of the processor's caches to whoever makes the next chunk.
    """
    body, sink = (mix.path / "body").read_bytes(), str(build("sink", programs))
    chunks = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)]
    pairs = [socket.socketpair() for _ in range(clients)]
    readers: list[subprocess.Popen[bytes]] = []
    try:
        for _, theirs in pairs:
            readers.append(subprocess.Popen([sink, "-", "-", "0"], stdin=theirs, stdout=subprocess.PIPE))
            theirs.close()
        framer, envelopes, count, sent = LineFramer(), Envelopes(SESSION, TIME), 0, 0
        began, cpu, stolen = time.monotonic(), time.process_time(), Stolen()
        while count < lines:
            decoder = ClaudeDecoder(Carried(0.0))
            for chunk in chunks:
                cut = framer.feed(chunk)
                frames = b"".join(_typed(decoder, envelopes, cut, count))
                count, sent = count + len(cut), sent + len(frames)
                for ours, _ in pairs:
                    ours.sendall(frames)
        spent, seconds, share = time.process_time() - cpu, time.monotonic() - began, stolen.share()
        for ours, _ in pairs:
            ours.close()
        with bounded(readers):
            assert all(f'"bytes":{sent},'.encode() in reader.communicate()[0] for reader in readers)
    finally:
        end(readers)
        for pair in pairs:
            for each in pair:
                each.close()
    return Flow(count, seconds, spent, stolen=share)
