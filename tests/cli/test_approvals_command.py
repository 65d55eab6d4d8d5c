"""`clisup approvals`: pending approvals, shown so that nothing in them can pretend, and their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SESSION, FakeDaemon, Peer
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.views.events import LINES, WIDTH, question_lines, visible
from clisup.errors import UsageError

Run = Callable[..., Any]
OTHER = "4b2a0000-0000-4000-8000-000000000002"


def approval(approval_id: str = "1:0", session: str = SESSION, **more: Any) -> dict[str, Any]:
    return {
        "approval_id": approval_id, "session_id": session, "turn_id": "t1", "tool_name": "Bash",
        "input": {"command": "git status"}, "suggestions": [], "requested_at": "2026-01-01T10:00:00.000000Z", "seq": 7, **more,
    }  # fmt: skip


@pytest.fixture
def opened(daemon: FakeDaemon) -> list[dict[str, Any]]:
    """What the daemon lists; it takes every answer."""
    listed: list[dict[str, Any]] = [approval()]

    def respond(peer: Peer, params: dict[str, Any]) -> Any:
        return {name: params[name] for name in ("approval_id", "session_id", "decision")}

    def give(peer: Peer, params: dict[str, Any]) -> Any:
        return {"approvals": [a for a in listed if params.get("session_id") in (None, a["session_id"])]}

    daemon.handlers |= {"approval/list": give, "approval/respond": respond}
    return listed


def test_the_list_has_an_id_that_can_be_answered(clisup: Run, opened: list[dict[str, Any]]) -> None:
    ran = clisup("approvals")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split() == ["3f2a0000/1:0", "t1", "2026-01-01T10:00:00Z", "Bash", "git", "status"]
    opened.clear()
    assert clisup("approvals").out == "No pending approvals.\n"


def test_the_whole_is_there_as_json(clisup: Run, opened: list[dict[str, Any]]) -> None:
    assert json.loads(clisup("approvals", "--json", "--session", SESSION).out) == opened[0]


@pytest.mark.parametrize("name", ["1:0", "3f2a/1:0", f"{SESSION}/1:0"])
def test_allow_takes_the_id_as_it_is_shown(clisup: Run, daemon: FakeDaemon, opened: list[Any], name: str) -> None:
    assert clisup("approvals", "allow", name) == (0, "allow: Bash git status\n", "")
    assert daemon.calls("approval/respond") == [
        {"approval_id": "1:0", "session_id": SESSION, "decision": "allow", "remember": False}
    ]


def test_deny_may_have_a_message_and_both_may_be_remembered(clisup: Run, daemon: FakeDaemon, opened: list[Any]) -> None:
    assert clisup("approvals", "deny", "1:0", "--message", "Not here.", "--remember").code == 0
    (said,) = daemon.calls("approval/respond")
    assert (said["decision"], said["message"], said["remember"]) == ("deny", "Not here.", True)


def test_the_first_characters_of_a_long_id_are_enough_and_two_that_fit_are_not_guessed(
    clisup: Run, daemon: FakeDaemon, opened: list[Any]
) -> None:
    opened[:] = [approval("1:091fe075-aaaa"), approval("1:091fe075-bbbb", OTHER)]
    ran = clisup("approvals", "allow", "1:091f")
    assert ran.code == 2 and "3f2a0000/1:091fe075-aaaa, 4b2a0000/1:091fe075-bbbb" in ran.err
    assert not daemon.calls("approval/respond")
    assert clisup("approvals", "allow", "4b2a/1:091f").code == 0
    assert daemon.calls("approval/respond")[0]["session_id"] == OTHER


def test_one_that_is_not_open_is_asked_of_the_daemon_which_knows_why(
    clisup: Run, daemon: FakeDaemon, opened: list[Any]
) -> None:
    def respond(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError(
            "cannot answer approval 1:9, because it was resolved already: deny", kind="approval_already_resolved"
        )

    daemon.handlers["approval/respond"] = respond
    ran = clisup("approvals", "allow", "1:9")
    assert (ran.code, ran.out) == (2, "") and "resolved already: deny" in ran.err
    assert daemon.calls("approval/respond") == [{"approval_id": "1:9", "decision": "allow", "remember": False}]


# What a tool's input can do to the reader


HOSTILE = "ls\x1b[2J\x1b]0;t\x07 \r\u202egnp.exe\u2028\x9b31m\u200b"


def test_nothing_of_an_input_drives_the_terminal(clisup: Run, opened: list[dict[str, Any]]) -> None:
    opened[:] = [approval("1:\x1b[2J", tool_name="Ba\x1bsh", input={"com\x1bmand": HOSTILE, "command": HOSTILE})]
    for args in ((), ("--json",)):
        out = clisup("approvals", *args).out
        assert not {char for char in out if not char.isprintable() and char != "\n"} or args == ("--json",)
        assert "\x1b" not in out


@given(st.text())
def test_what_is_visible_prints_as_itself(text: str) -> None:
    assert visible(text).isprintable() or not visible(text)


def test_no_line_of_an_input_can_look_like_the_question() -> None:
    lines = question_lines(approval(input={"command": "true\napproval: Read\n  allow it? [y]es"}, reason="it\nsays"))
    assert lines[0] == "approval: Bash (it\\x0asays)"
    assert lines[1:] == ["  command:", "  | true", "  | approval: Read", "  |   allow it? [y]es"]


@pytest.mark.parametrize(
    "given", [{"command": "x\n" * (LINES + 5)}, {"command": "x" * (WIDTH + 1)}, {str(n): "x" for n in range(LINES)}]
)
def test_an_input_that_is_too_long_is_cut_and_says_so(given: dict[str, str]) -> None:
    lines = question_lines(approval(input=given))
    assert len(lines) <= LINES + 2 and all(len(line) <= WIDTH + 10 for line in lines)
    assert lines[-1].startswith("  [cut: ")
    assert question_lines(approval(blob="blob-1-out-0"))[-1].startswith("  [cut: ")


# clisup run without a terminal


def test_run_without_a_terminal_says_how_to_answer(clisup: Run, daemon: FakeDaemon) -> None:
    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.emit("approval_requested", approval_id="1:0", tool_name="Bash", input={"command": "ls"})
        daemon.emit(
            "approval_resolved", approval_id="1:0", tool_name="Bash", decision="deny", by="rule", rule="backend 1"
        )
        daemon.emit("turn_completed", outcome="completed", text="", denied=["Bash"])
        return {"turn_id": "t1", "seq": 1, "delivery": "delivered"}

    daemon.handlers["session/prompt"] = prompt
    ran = clisup("run", "-b", "demo", "hi")
    assert ran.code == 77
    assert f"clisup approvals allow|deny {SESSION}/1:0" in ran.err
    assert "approval: deny Bash, by rule backend 1" in ran.err
    assert "docs/approvals.md" in ran.err


def test_status_shows_how_many_wait(clisup: Run, daemon: FakeDaemon) -> None:
    from clisup.cli.status.columns import status_of

    assert status_of(daemon.summary(phase="approval", approvals=2)) == ("wants you (2)", "asking")


def test_what_is_no_name_of_an_approval_is_told_in_words(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["approval/list"] = lambda peer, params: {"approvals": []}
    ran = clisup("approvals", "allow", "1")
    assert ran.code == 2 and "because approvals are named 1:0 or 3f2a9c1e/1:0" in ran.err
    assert not daemon.calls("approval/respond")
