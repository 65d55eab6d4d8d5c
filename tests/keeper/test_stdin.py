"""stdin of the CLI: messages are whole, in order, and each id is written at most once."""

from __future__ import annotations

import json

import pytest

BIG = "x" * 1_000_000 + "\n"


@pytest.mark.fault(32)
def test_the_first_prompt_is_written_and_then_eof(keep):
    probe = keep(["/bin/cat"], stdin="a prompt\n")
    assert probe.exit()["exit_code"] == 0
    assert probe.out() == b"a prompt\n"


def test_a_cli_that_never_reads_its_prompt_holds_nothing_up(keep):
    probe = keep("echo here; sleep 60", stdin=BIG)
    assert probe.start()["state"] == "running"
    probe.said(b"here\n")
    probe.send(op="end", ladder=[["TERM", 10]])
    assert probe.exit()["signal"] == 15


@pytest.mark.fault(3)
def test_a_repeated_id_is_acked_and_not_written(keep):
    probe = keep(["/bin/cat"], stdin="first\n", stdin_eof=False)
    probe.start()
    for number, text in [(7, BIG), (7, BIG), (9, "nine\n"), (8, "eight\n"), (7, "seven\n")]:
        probe.send(op="stdin", id=number, data=text)
    probe.send(op="eof", id=10)
    acks = []
    while acks[-1:] != [10]:
        acks.append(probe.receive("ack")["ack"])
    assert {7, 9, 10} <= set(acks) <= {7, 8, 9, 10}
    probe.exit()
    assert probe.out() == b"first\n" + BIG.encode() + b"nine\n"


@pytest.mark.fault(3)
def test_ids_survive_a_new_connection(keep):
    probe = keep(["/bin/cat"], stdin_eof=False)
    probe.start()
    probe.send(op="stdin", id=3, data="three\n")
    assert probe.receive("ack") == {"ack": 3}
    assert probe.connect()["last_id"] == 3
    probe.send(op="stdin", id=3, data="three\n")
    assert probe.receive("ack") == {"ack": 3}
    probe.send(op="eof", id=4)
    probe.exit()
    assert probe.out() == b"three\n"


def test_an_ack_comes_after_the_last_byte_not_before(keep):
    probe = keep("read line; echo $line; exec cat", stdin_eof=False)
    probe.start()
    probe.send(op="signal", signal="STOP")
    probe.send(op="stdin", id=1, data=BIG)
    probe.send(op="survivors")  # answered after the message was taken
    assert probe.receive("ack", "survivors").get("survivors") == []
    probe.send(op="signal", signal="CONT")
    assert probe.receive("ack") == {"ack": 1}


@pytest.mark.fault(31)
def test_a_cli_that_shut_its_stdin_gives_a_typed_error(keep):
    probe = keep("exec 0<&-; echo shut; sleep 60", stdin_eof=False)
    probe.start()
    probe.said(b"shut\n")
    probe.send(op="stdin", id=1, data="hello\n")
    assert probe.receive("nack") == {"nack": 1, "error": "EPIPE"}
    assert probe.receive("stdin_error")["error"] == "EPIPE"
    probe.send(op="stdin", id=2, data="hello\n")
    assert probe.receive("nack") == {"nack": 2, "error": "EPIPE"}
    probe.send(op="end", ladder=[])
    assert probe.exit()["stdin_error"] == "EPIPE"


def test_text_that_no_room_is_left_for_is_refused_and_nothing_overtakes_it(keep):
    probe = keep(["/bin/sleep", "60"], stdin_eof=False)
    probe.start()
    for number, size in [(1, 40), (2, 30), (3, 1)]:
        probe.send(op="stdin", id=number, data="x" * (size << 20))
    assert probe.receive("nack") == {"nack": 2, "error": "full"}
    assert probe.receive("nack") == {"nack": 3, "error": "full"}


@pytest.mark.parametrize("text", ["\ud800", "a\udc80"])
def test_a_lone_surrogate_is_refused_by_its_id(keep, text):
    probe = keep(["/bin/cat"], stdin_eof=False)
    probe.start()
    probe.sock.sendall(json.dumps({"op": "stdin", "id": 1, "data": text}).encode() + b"\n")
    assert probe.receive("nack") == {"nack": 1, "error": "encoding"}
