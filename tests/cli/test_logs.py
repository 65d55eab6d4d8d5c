"""`clisup logs`: of one session and of all, stored and as they come, with a durable place."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import OTHER, SESSION, SILENCE, FakeDaemon, Peer

from clisup.cli import lookup
from clisup.cli.commands import logs
from clisup.errors import UsageError

Run = Callable[..., Any]


@pytest.fixture
def history(daemon: FakeDaemon) -> FakeDaemon:
    for n in range(1200):
        daemon.emit("content_delta", kind="text", text=f"piece {n}")
    daemon.emit("message", message_id="m", blocks=[{"kind": "text", "text": "all of it"}])
    return daemon


def test_logs_read_page_after_page_to_the_end(clisup: Run, history: FakeDaemon) -> None:
    ran = clisup("logs", "3f2a")
    assert (ran.code, len(ran.out.splitlines())) == (0, 1201)
    assert ran.out.splitlines()[-1].endswith("message             t1    all of it")
    assert len(history.calls("session/events")) == 3


def test_logs_without_deltas_keep_the_messages(clisup: Run, history: FakeDaemon) -> None:
    assert len(clisup("logs", "--no-deltas", "3f2a").out.splitlines()) == 1


def test_logs_as_json_are_the_envelopes(clisup: Run, history: FakeDaemon) -> None:
    assert [json.loads(line) for line in clisup("logs", "--json", "3f2a").out.splitlines()] == history.events


def test_the_last_lines_are_those_that_would_be_printed_last(clisup: Run, history: FakeDaemon) -> None:
    whole = clisup("logs", "3f2a").out.splitlines()
    assert clisup("logs", "-n", "3", "3f2a").out.splitlines() == whole[-3:]
    assert clisup("logs", "-n", "3", "--no-deltas", "3f2a").out.splitlines() == whole[-1:]
    assert [
        json.loads(line) for line in clisup("logs", "-n", "2", "--json", "3f2a").out.splitlines()
    ] == history.events[-2:]


@pytest.mark.parametrize("which", [("-f", SESSION), ("--all", "-f")])
def test_the_last_lines_and_then_what_comes(clisup: Run, two: FakeDaemon, which: tuple[str, ...]) -> None:
    hangs_up_after(two, "new")
    ran = clisup("logs", "-n", "1", *which)
    assert [line.split()[-1] for line in ran.out.splitlines()] == ["n5:" if "--all" in which else "n4:", "new:"]
    last = {event["session_id"]: event["seq"] for event in two.events[:6]}
    assert two.calls("session/subscribe")[0]["after_seq"] == (last if "--all" in which else last[SESSION])


def test_a_line_is_red_for_a_failure_yellow_for_a_question_and_green_for_a_good_end(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    daemon.emit("prompt_accepted", delivery="steered", text="Leave the tests alone.")
    daemon.emit("approval_requested", approval_id="1:0", tool_name="Bash", input={"command": "ls"})
    for outcome in ("completed", "failed", "timed_out", "interrupted"):
        daemon.emit(
            "turn_completed", outcome=outcome, error={"kind": "x", "message": "y"} if outcome != "completed" else None
        )
    lines = clisup("logs", "3f2a").out.splitlines()
    assert "steered: Leave the tests alone." in lines[0]
    assert [line[:5] for line in lines[:5]] == ["\033[1m2", "\033[33m", "\033[32m", "\033[31m", "\033[31m"]
    assert not lines[5].startswith("\033")


def test_raw_logs_are_the_lines_of_the_cli(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.emit("message", blocks=[], native='{"type":"assistant"}')
    daemon.emit("notice", code="of the daemon", message="has no line")
    daemon.emit("tool_use", tool_use_id="u", name="Bash", native='{"type":"assistant"}')
    daemon.emit("stderr", text="again", native="again")
    daemon.emit("stderr", text="again", native="again")
    assert clisup("logs", "--raw", "3f2a").out == '{"type":"assistant"}\nagain\nagain\n'
    assert daemon.calls("session/events")[0]["raw"] is True


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_raw_lines_drive_no_terminal_and_are_verbatim_elsewhere(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tty: bool, env: dict[str, str]
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    daemon.emit("stderr", text="x", native="a\x1b]52;c;aGk=\x07b")
    out = clisup("logs", "--raw", "3f2a").out
    assert ("\x1b]" in out, "\x07" in out) == (not tty, not tty)


def hangs_up_after(daemon: FakeDaemon, *comes: str) -> None:
    """What is stored, then what comes, then a word of the daemon's that ends the command."""
    subscribe = daemon.handlers["session/subscribe"]

    def then_the_end(peer: Peer, params: dict[str, Any]) -> Any:
        answered = subscribe(peer, params)
        for code in comes:
            daemon.emit("notice", code=code, message="")
        peer.send(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "enough", "data": {"kind": "internal"}}}
        )
        return answered

    daemon.handlers["session/subscribe"] = then_the_end


def test_following_shows_what_is_stored_and_what_comes(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="old", message="")
    hangs_up_after(daemon, "new")
    ran = clisup("logs", "-f", "--no-deltas", SESSION)
    assert [line.split()[-1] for line in ran.out.splitlines()] == ["old:", "new:"]
    assert daemon.calls("session/subscribe") == [{"session_id": SESSION, "after_seq": 0, "raw": False, "deltas": False}]


def test_only_what_comes_is_shown_where_that_is_asked_for(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="old", message="")
    hangs_up_after(daemon, "new")
    assert [line.split()[-1] for line in clisup("logs", "-f", "--new", SESSION).out.splitlines()] == ["new:"]


@pytest.fixture
def two(daemon: FakeDaemon) -> FakeDaemon:
    """Two sessions whose events alternate; one is closed."""
    for n in range(6):
        daemon.emit("notice", session=OTHER if n % 2 else SESSION, code=f"n{n}", message="")
        daemon.events[-1]["ts"] = f"2026-01-01T10:00:0{n}.000000Z"

    def listed(peer: Peer, params: dict[str, Any]) -> Any:
        session = OTHER if params.get("state") == "closed" else SESSION
        return {"sessions": [daemon.summary(session_id=session)], "next_cursor": None}

    daemon.handlers["session/list"] = listed
    return daemon


def test_the_logs_of_all_sessions_are_in_the_order_of_their_time(
    clisup: Run, two: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "HELD", 0)
    monkeypatch.setattr(lookup, "_LEAST_PAGE", 1)
    lines = clisup("logs", "--all").out.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [
        ("77770000" if n % 2 else "3f2a0000", f"n{n}:") for n in range(6)
    ]
    assert [json.loads(line) for line in clisup("logs", "--all", "--json").out.splitlines()] == two.events


def test_a_session_that_is_deleted_while_its_log_is_read_simply_ends(clisup: Run, two: FakeDaemon) -> None:
    events = two.handlers["session/events"]

    def deleted(peer: Peer, params: dict[str, Any]) -> Any:
        if params["session_id"] == OTHER:
            raise UsageError("cannot find it", kind="session_not_found")
        return events(peer, params)

    two.handlers["session/events"] = deleted
    ran = clisup("logs", "--all")
    assert (ran.code, len(ran.out.splitlines())) == (0, 3)


def test_all_sessions_are_followed(clisup: Run, two: FakeDaemon) -> None:
    hangs_up_after(two, "new")
    lines = clisup("logs", "--all", "-f").out.splitlines()
    assert [line.split()[0] for line in lines] == ["3f2a0000", "77770000"] * 3 + ["3f2a0000"]
    assert two.calls("session/subscribe")[0]["session_id"] == "*"


def test_raw_lines_of_two_sessions_are_told_apart(clisup: Run, daemon: FakeDaemon) -> None:
    for session in (SESSION, OTHER, SESSION, OTHER):
        daemon.emit("message", session=session, blocks=[], native="the same")
    hangs_up_after(daemon)
    assert clisup("logs", "--all", "-f", "--raw").out == "3f2a0000  the same\n77770000  the same\n"


def test_missing_events_are_told_in_words_where_they_are_missing(clisup: Run, daemon: FakeDaemon) -> None:
    def with_a_hole(peer: Peer, params: dict[str, Any]) -> Any:
        page = events(peer, params)
        return page | {"events": [e for e in page["events"] if e["seq"] != 2],
                       "gaps": [{"from_seq": 2, "to_seq": 2, "reason": "damaged"}]}  # fmt: skip

    events = daemon.handlers["session/events"]
    daemon.handlers["session/events"] = with_a_hole
    for code in "abc":
        daemon.emit("notice", code=code, message="")
    lines = clisup("logs", "3f2a").out.splitlines()
    assert [line.split()[-1] for line in lines] == ["a:", "there", "c:"]
    assert "events 2 to 2 cannot be read: the journal is damaged there" in lines[1]
    assert json.loads(clisup("logs", "--json", "3f2a").out.splitlines()[1])["type"] == "gap"


def test_what_was_printed_under_a_name_is_not_printed_again(clisup: Run, two: FakeDaemon) -> None:
    hangs_up_after(two)
    assert len(clisup("logs", "--all", "-f", "--name", "audit").out.splitlines()) == 6
    assert two.cursors["audit"] == {SESSION: 3, OTHER: 3}
    two.emit("notice", code="later", message="")
    assert [line.split()[-1] for line in clisup("logs", "--all", "-f", "--name", "audit").out.splitlines()] == [
        "later:"
    ]


def test_what_is_at_hand_together_is_acknowledged_together(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_at_once(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.cursors["audit"] = {SESSION: 0}
        frames: list[dict[str, Any]] = [{"id": peer.asked, "result": {"after_seq": 0, "next_seq": 101, "first_seq": 1}}]
        frames += [{"method": "session/event", "params": event} for event in daemon.events]
        frames.append({"id": None, "error": {"code": -32603, "message": "enough", "data": {"kind": "internal"}}})
        peer.send(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        return SILENCE

    for n in range(100):
        daemon.emit("notice", code=str(n), message="")
    monkeypatch.setattr(logs, "ACK_EVERY", 40)
    daemon.handlers["session/subscribe"] = all_at_once
    assert len(clisup("logs", "-f", "--name", "audit", SESSION).out.splitlines()) == 100
    assert [params["seq"] for params in daemon.calls("session/ack")] == [40, 80, 100]


@pytest.mark.parametrize(
    "args", [("--all", "3f2a"), ("--name", "x", "3f2a"), ("--new", "3f2a"), ("-f",), ("-f", "--new", "-n", "1", "3f2a")]
)
def test_what_does_not_go_together_is_refused(clisup: Run, daemon: FakeDaemon, args: tuple[str, ...]) -> None:
    ran = clisup("logs", *args)
    assert (ran.code, daemon.requests) == (2, [])
    assert "hint: see clisup logs --help" in ran.err
