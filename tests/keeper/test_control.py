"""The control socket: one daemon at a time, nothing outstanding twice, and no ear for the run's own processes."""

from __future__ import annotations

import json
import sys

import pytest
from keeper_probe import eventually

CONNECT = """
import socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
try:
    peer.sendall(b'{"op": "hello", "proto": 1}\\n')
    print('heard', len(peer.recv(1000)), flush=True)
except ConnectionError:
    print('heard 0', flush=True)
"""


def test_hello_tells_who_runs_and_how_far_it_is(keep):
    probe = keep("printf 12345; read line", stdin_eof=False)
    pid = probe.ready()["pid"]
    eventually(lambda: probe.out() == b"12345")
    hello = probe.connect()
    assert (hello["pid"], hello["keeper_pid"], hello["state"]) == (pid, probe.process.pid, "running")
    assert (hello["out"], hello["err"], hello["last_id"], hello["blocked"]) == (5, 0, 0, False)


@pytest.mark.fault(1)
def test_a_new_connection_drops_the_old_one(keep):
    probe = keep(["/bin/cat"], stdin_eof=False)
    probe.start()
    old = probe.sock
    probe.connect()
    assert old.recv(100) == b""
    probe.send(op="stdin", id=1, data="to the new one\n")
    assert probe.receive("ack") == {"ack": 1}


@pytest.mark.fault(5)
def test_a_daemon_that_comes_back_hears_of_the_exit(keep):
    probe = keep("read line; exit 9", stdin_eof=False, orphans="grace")
    probe.start()
    probe.send(op="stdin", id=1, data="go\n")
    probe.receive("exited")  # the keeper waits for us to hang up
    assert probe.connect()["state"] == "exited"
    assert probe.receive("exited")["exit"]["exit_code"] == 9


def test_grew_has_one_outstanding_and_none_is_lost(keep):
    probe = keep("while read line; do echo $line; done", stdin_eof=False)
    probe.start()
    for number in range(1, 6):
        probe.send(op="stdin", id=number, data="x\n")
        eventually(lambda size=2 * number: len(probe.out()) == size)
    probe.send(op="survivors")
    probe.receive("survivors")
    assert [push["out"] for push in probe.pushes if push.get("push") == "grew"] == [2]
    probe.send(op="seen")
    assert probe.receive("grew")["out"] == 10
    probe.send(op="seen")
    probe.send(op="stdin", id=6, data="x\n")
    assert probe.receive("grew")["out"] == 12


def test_a_daemon_may_ask_for_a_window_of_them(keep):
    probe = keep("while read line; do echo $line; done", stdin_eof=False)
    assert probe.start(window=3)["window"] == 3
    for number in range(1, 6):
        probe.send(op="stdin", id=number, data="x\n")
        eventually(lambda size=2 * number: len(probe.out()) == size)
    probe.send(op="survivors")
    probe.receive("survivors")
    assert [push["out"] for push in probe.pushes if push.get("push") == "grew"] == [2, 4, 6]
    probe.send(op="seen")
    assert probe.receive("grew")["out"] == 10


@pytest.mark.fault(42)
def test_a_process_of_the_run_itself_is_not_served(keep, tmp_path):
    argv = [sys.executable, "-I", "-S", "-c", CONNECT, "ctl.sock"]  # relative: a long path would not fit
    probe = keep(["/bin/sh", "-c", 'setsid "$@" & sleep 60', "sh", *argv], stdin_eof=False, cwd=str(tmp_path / "run0"))
    assert probe.ready()["ready"]
    probe.said(b"heard 0\n")
    assert probe.connect()["state"] == "running"


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    "line",
    [b"garbage", b"[]", b"{}", b'{"op": 1}', b'{"op": "stdin", "id": true, "data": ""}',
     b'{"op": "stdin", "id": 0, "data": ""}',
     b'{"op": "stdin", "id": NaN}', b"[" * 100_000, b"\xff\xfe", b'{"op": "end", "ladder": [["FOO", 1]]}',
     b'{"op": "end", "ladder": [["INT", -1]]}', b'{"op": "signal", "signal": "CHLD"}', b'{"op": "orphans"}'],
)  # fmt: skip
def test_garbage_drops_that_connection_only(keep, line):
    probe = keep(["/bin/sleep", "60"])
    probe.start()
    probe.sock.sendall(line + b"\n")
    assert probe.line() is None
    assert probe.connect()["state"] == "running"


def test_hello_comes_first(keep):
    probe = keep(["/bin/sleep", "60"])
    probe.start()
    probe.sock.close()
    original, probe.send = probe.send, lambda **message: original(op="end", ladder=[])
    with pytest.raises(AssertionError):
        probe.connect()
    probe.send = original
    assert probe.connect()["state"] == "running"


def test_an_operation_of_a_newer_daemon_is_answered_and_the_connection_lives(keep):
    probe = keep(["/bin/sleep", "60"])
    probe.start()
    probe.send(op="dance")
    assert probe.receive("error") == {"error": "unknown_op", "op": "dance"}
    probe.send(op="survivors")
    assert probe.receive("survivors")["total"] == 0


@pytest.mark.fault(52)
def test_a_daemon_that_reads_nothing_is_dropped_within_a_bound(keep):
    probe = keep(["/bin/sleep", "60"])
    probe.start()
    probe.sock.settimeout(20)
    flood = json.dumps({"op": "x" * 64}).encode() + b"\n"
    with pytest.raises(OSError):
        for _ in range(100_000):
            probe.sock.sendall(flood * 16)
    assert probe.connect()["state"] == "running"


def test_a_signal_goes_to_the_cli_or_to_its_tree(keep):
    probe = keep("trap 'echo got' USR1; echo up; while :; do sleep 0.05; done")
    probe.start()
    probe.said(b"up\n")
    probe.send(op="signal", signal="USR1", target="main")
    probe.said(b"got\n")
