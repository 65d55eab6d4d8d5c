"""Greedy clients wait, others do not: what the daemon did between a request and its answer is counted, never timed."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from harness import Harness, until
from wire import Hangup, Wire

from clisup.policy.fair_queue import MAX_QUOTA

FLOODERS, PINGS = 30, 300
MIB = 1024 * 1024


class Flooder:
    """A connection with `PINGS` requests under way at once. `done` holds when each was done, by the daemon's clock."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.sendall(b"".join(b'{"id":%d,"method":"ping"}\n' % id_ for id_ in range(PINGS)))
        self.socket.setblocking(False)
        self._data = b""
        self.done: list[str] = []
        self.overloaded: list[dict[str, object]] = []

    def drain(self) -> bool:
        """Take what is there. Is that all there will be?"""
        try:
            while data := self.socket.recv(1 << 18):
                self._data += data
        except BlockingIOError:
            pass
        *lines, self._data = self._data.split(b"\n")
        for frame in map(json.loads, lines):
            if "error" in frame:
                self.overloaded.append(frame["error"]["data"])
            else:
                self.done.append(frame["result"]["time"])
        return len(self.done) + len(self.overloaded) == PINGS


def _over(floods: list[Flooder], which: Callable[[list[bool]], bool]) -> bool:
    """All of them are drained first, whatever the answer."""
    return which([each.drain() for each in floods])


def _now() -> str:
    """As the daemon writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.fixture
def flood() -> Iterator[Callable[[Harness], list[Flooder]]]:
    """`flood(daemon)` begins one of `FLOODERS` connections."""
    with ExitStack() as stack:

        def begin(daemon: Harness) -> list[Flooder]:
            floods = [Flooder(daemon.socket) for _ in range(FLOODERS)]
            for each in floods:
                stack.callback(each.socket.close)
            return floods

        yield begin


@pytest.mark.fault(47)
def test_beside_a_flood_a_good_client_waits_for_a_few_requests_and_the_floods_take_turns(
    serve: Callable[..., Harness], flood: Callable[[Harness], list[Flooder]]
) -> None:
    daemon = serve()
    with daemon.wire() as good:
        good.call("ping")
        floods = flood(daemon)
        waits: list[tuple[str, str]] = []
        until(lambda: _over(floods, any) or any(each.done for each in floods))
        while not _over(floods, any) and len(waits) < 40:  # of its share of 64
            asked = _now()
            waits.append((asked, good.call("ping")["time"]))
        until(lambda: _over(floods, all))
    everything = sorted(time for each in floods for time in each.done)
    between = sorted(sum(asked < time < done for time in everything) for asked, done in waits)
    assert len(between) >= 10, "the flood was over before anything was measured"
    # Without fair share all that the floods may have running at once goes first: 64 requests of each of them.
    assert between[len(between) // 2] <= 4 * MAX_QUOTA, between
    half = everything[len(everything) // 2]
    counts = Counter({n: sum(time < half for time in each.done) for n, each in enumerate(floods)})
    assert max(counts.values()) <= 2 * min(counts.values()) + MAX_QUOTA, counts
    assert not any(each.overloaded for each in floods)


@pytest.mark.fault(47)
def test_a_wait_that_is_too_long_ends_as_overloaded_for_the_offender_alone(
    serve: Callable[..., Harness], flood: Callable[[Harness], list[Flooder]]
) -> None:
    # At this rate a client that rests has its share again in a moment; a flood never rests.
    daemon = serve(daemon={"request_wait_s": 0.0002, "request_rate": 10_000})
    with daemon.wire() as good:
        good.call("ping")
        floods = flood(daemon)
        for _ in range(20):
            assert good.call("ping")["time"]
            _over(floods, all)
        until(lambda: _over(floods, all))
    refused = [data for each in floods for data in each.overloaded]
    assert refused
    assert all((data["kind"], data["retryable"], data["retry_after_s"]) == ("overloaded", True, 1) for data in refused)


@pytest.mark.fault(44)
@pytest.mark.fault(47)
def test_half_frames_of_all_clients_together_are_bounded(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_held_bytes": 4 * MIB})
    with daemon.wire() as good:
        good.call("ping")
        wires = [daemon.wire() for _ in range(12)]
        for wire in wires:
            wire.send(b'{"id":1,"method":"ping","params":{"x":"' + b"y" * 700_000)
        gone = until(lambda: len(ended := [wire for wire in wires if _has_news(wire)]) >= 7 and ended)
        for wire in gone:
            data = wire.frame()["error"]["data"]
            assert (data["kind"], data["retry_after_s"], data["limit"]) == ("overloaded", 1, "max_held_bytes")
            with pytest.raises(Hangup):
                wire.frame()
        assert good.call("ping")
        assert len(daemon.call("daemon/status")["clients"]) >= len(wires) - len(gone) + 2
    for wire in wires:
        wire.close()


@pytest.mark.fault(43)
@pytest.mark.fault(47)
def test_answers_that_nobody_reads_are_bounded_and_their_client_goes(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_held_bytes": 4 * MIB})
    session = daemon.new()
    session.ask("@stream 1000 1500")
    with daemon.wire() as good:
        deaf = [daemon.wire() for _ in range(10)]
        for wire in deaf:
            for _ in range(20):
                wire.post("session/events", session_id=session.id, limit=1000)
        until(lambda: len(daemon.call("daemon/status")["clients"]) <= 5)  # three pages fit, and two clients hold none
        for _ in range(3):
            assert len(good.call("session/events", session_id=session.id, limit=1000)["events"]) > 100
    for wire in deaf:
        wire.close()


@pytest.mark.fault(48)
def test_a_flood_of_connections_is_refused_one_by_one_and_the_others_are_served(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_connections": 20})
    with daemon.wire() as good:
        good.call("ping")
        refused = 0
        for _ in range(20):
            wires = [daemon.wire() for _ in range(50)]
            assert good.call("ping")
            refused += sum(_refusal(wire) == "overloaded" for wire in wires[25:])
            for wire in wires:
                wire.close()
        assert refused > 400
    until(lambda: daemon.log.read_text().count("client refused") < 60, "a flood of connections is no flood of the log")


def _has_news(wire: Wire) -> bool:
    """Bytes, or the end, can be read."""
    wire.socket.setblocking(False)
    try:
        wire.socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    finally:
        wire.socket.settimeout(40)
    return True


def _refusal(wire: Wire) -> str | None:
    try:
        return str(wire.frame()["error"]["data"]["kind"])
    except (Hangup, TimeoutError):
        return None
