"""Clients that are slow, deaf, many or gone: they cost nobody else anything, and leave nothing behind."""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import termios
from collections.abc import Callable

import pytest
from harness import Harness, until
from wire import Hangup, Wire

from clisup.errors import ClisupError


@pytest.mark.fault(43)
def test_a_client_that_never_reads_costs_the_others_nothing(daemon: Harness) -> None:
    session = daemon.new()
    with daemon.wire() as deaf, daemon.wire() as good:
        deaf.post("session/subscribe", session_id=session.id, after_seq=0)
        good.call("session/subscribe", session_id=session.id, after_seq=0)
        for _ in range(50):
            deaf.post("session/events", session_id=session.id)
        session.prompt("@stream 4000 500")
        events = good.events_until("turn_completed")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert good.call("ping")


@pytest.mark.fault(43)
def test_answers_that_nobody_reads_do_not_pile_up(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_requests": 4})
    session = daemon.new()
    session.ask("@stream 900 900")
    with daemon.wire() as deaf:
        deaf.socket.settimeout(0.5)
        for _ in range(4):  # the last of them cannot be sent, because the daemon does not read on
            try:
                for _ in range(150):
                    deaf.post("session/events", session_id=session.id, limit=1000)
            except TimeoutError:
                break
        rss = max(daemon.call("daemon/status")["daemon"]["rss_bytes"] for _ in range(100))
        assert rss < 250 * 1024 * 1024, "600 answers of 1 MB are held"


@pytest.mark.fault(49)
def test_too_many_open_files_is_survived(daemon: Harness) -> None:
    before = daemon.limit_files(20)
    wires = [daemon.wire() for _ in range(60)]
    until(lambda: "cannot accept" in daemon.log.read_text())
    for wire in wires:
        wire.close()
    until(lambda: _pings(daemon))
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
    assert daemon.new().ask("hello")["outcome"] == "completed"


def test_unsubscribing_in_mid_flood_leaves_whole_frames(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("@stream 2000 500")
    with daemon.wire() as wire:
        wire.post("session/subscribe", session_id=session.id, after_seq=0)
        until(lambda: _waiting_bytes(wire) > 90_000)  # more than a socket takes: the daemon is blocked in mid-frame
        last = wire.post("session/unsubscribe", session_id=session.id)
        assert daemon.call("ping")
        assert wire.answer(last) == {"ok": True}
        seqs = [frame["params"]["seq"] for frame in wire.pushed]
        assert seqs == list(range(1, len(seqs) + 1))


def _waiting_bytes(wire: Wire) -> int:
    answer = fcntl.ioctl(wire.socket, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


@pytest.mark.fault(48)
def test_connections_are_capped_and_room_comes_back(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_connections": 4})
    until(lambda: len(daemon.call("daemon/status")["clients"]) == 1)  # the start's own probes have gone
    wires = [daemon.wire() for _ in range(3)]
    for wire in wires:
        wire.call("ping")
    with daemon.wire() as surplus:
        assert surplus.frame()["error"]["data"]["kind"] == "overloaded"
    wires.pop().close()
    until(lambda: _pings(daemon))
    for wire in wires:
        wire.close()


def _pings(daemon: Harness) -> bool:
    try:
        with daemon.wire() as wire:
            return bool(wire.call("ping"))
    except (ClisupError, Hangup, KeyError, OSError):  # refused, in whichever moment
        return False


@pytest.mark.fault(52)
def test_clients_that_come_and_go_leave_nothing_behind(daemon: Harness) -> None:
    session = daemon.new()
    daemon.call("ping")
    before = daemon.call("daemon/status")
    for n in range(300):
        with Wire(daemon.socket) as wire:
            if n % 3:
                wire.call("session/subscribe", session_id=session.id, after_seq=0)
            elif n % 2:
                wire.send(b'{"id":1,"method":"daem')
    now = until(lambda: (s := daemon.call("daemon/status")) and len(s["clients"]) <= len(before["clients"]) and s)
    assert now["daemon"]["open_fds"] <= before["daemon"]["open_fds"] + 2
    assert session.get()["subscribers"] == 0
    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before["daemon"]["open_fds"] + 4
