"""`clisup approvals`: pending approvals, shown so that nothing in them can pretend, and their answers."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import SESSION, FakeDaemon, Peer
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.approval_numbers import KEEP_S, MOST, ApprovalNumbers
from clisup.cli.views.approval_table import HEAD, laid_out
from clisup.cli.views.events import LINES, WIDTH, question_lines, visible
from clisup.cli.views.layout import cells_of
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

    daemon.handlers |= {
        "approval/list": give, "approval/respond": respond, "ping": lambda peer, params: {"time": "2026-01-01T10:05:01Z"}
    }  # fmt: skip
    return listed


def test_the_list_has_an_id_that_can_be_answered(clisup: Run, opened: list[dict[str, Any]]) -> None:
    ran = clisup("approvals")
    assert ran.code == 0
    head, row = ran.out.splitlines()
    assert head.split() == ["#", "ID", "SINCE", "BACKEND", "DIRECTORY", "TITLE", "ASKS"]
    assert row.split() == ["1", "3f2a0000/1:0", "5", "min", "demo", "/srv/app", "-", "Bash", "git", "status"]
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


# Numbers


def test_a_number_stays_with_its_approval_and_never_names_another(
    clisup: Run, daemon: FakeDaemon, opened: list[Any]
) -> None:
    first, second, third = approval("1:1"), approval("1:2"), approval("1:3", OTHER)
    opened[:] = [first, second]
    assert [line.split()[:2] for line in clisup("approvals").out.splitlines()[1:]] == [
        ["1", "3f2a0000/1:1"], ["2", "3f2a0000/1:2"],
    ]  # fmt: skip
    opened[:] = [second, third]
    assert [line.split()[:2] for line in clisup("approvals").out.splitlines()[1:]] == [
        ["2", "3f2a0000/1:2"], ["3", "4b2a0000/1:3"],
    ]  # fmt: skip
    assert clisup("approvals", "allow", "3").code == 0
    assert (daemon.calls("approval/respond")[-1]["session_id"], daemon.calls("approval/respond")[-1]["approval_id"]) == (
        OTHER, "1:3",
    )  # fmt: skip

    def respond(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("approval 1:1 is already resolved: deny", kind="approval_already_resolved")

    daemon.handlers["approval/respond"] = respond
    ran = clisup("approvals", "allow", "1")
    assert (ran.code, ran.out) == (2, "") and "1:1 is already resolved" in ran.err
    assert daemon.calls("approval/respond")[-1]["approval_id"] == "1:1"


def test_a_number_is_free_again_a_day_after_the_last_list_with_it(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = ApprovalNumbers(str(socket_path))
    assert numbers.of([approval("1:1"), approval("1:2")]) == {(SESSION, "1:1"): 1, (SESSION, "1:2"): 2}
    later = time.time() + KEEP_S + 1
    monkeypatch.setattr("clisup.cli.approval_numbers.time.time", lambda: later)
    assert numbers.of([approval("1:2"), approval("1:3")]) == {(SESSION, "1:2"): 2, (SESSION, "1:3"): 1}


def test_another_daemon_has_numbers_of_its_own(socket_path: Path) -> None:
    assert ApprovalNumbers(str(socket_path)).of([approval("1:1")]) == {(SESSION, "1:1"): 1}
    assert ApprovalNumbers("/other.sock").of([approval("2:1")]) == {(SESSION, "2:1"): 1}
    assert ApprovalNumbers("/third.sock").named(1) is None


@pytest.mark.parametrize("content", ["", "{}", "[[1]]", '[["x", 1, 2, 3]]', "[" * 100_000])
def test_a_damaged_file_of_numbers_is_written_again(socket_path: Path, tmp_path: Path, content: str) -> None:
    numbers = ApprovalNumbers(str(socket_path))
    numbers.of([approval("1:1")])
    (file,) = (tmp_path / "cache" / "clisup").glob("approvals-*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(content)
    assert numbers.of([approval("1:2")]) == {(SESSION, "1:2"): 1}


def test_without_a_place_for_numbers_the_list_still_has_ids(
    clisup: Run, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    ran = clisup("approvals")
    assert ran.code == 0 and "3f2a0000/1:0" in ran.out
    assert clisup("approvals", "allow", "1").code == 2
    assert clisup("approvals", "allow", "1:0").code == 0


def test_there_are_no_more_numbers_than_three_digits_give(socket_path: Path) -> None:
    many = [approval(f"1:{n}") for n in range(MOST + 5)]
    numbered = ApprovalNumbers(str(socket_path)).of(many)
    assert sorted(numbered.values()) == list(range(1, MOST + 1))


def test_a_session_with_one_pending_approval_names_it(clisup: Run, daemon: FakeDaemon, opened: list[Any]) -> None:
    opened[:] = [approval("1:0"), approval("1:1", OTHER), approval("1:2", OTHER)]
    assert clisup("approvals", "allow", "3f2a").code == 0
    ran = clisup("approvals", "allow", "4b2a")
    assert ran.code == 2 and "4b2a0000/1:1, 4b2a0000/1:2" in ran.err
    opened[:] = opened[1:]
    ran = clisup("approvals", "allow", "3f2a")
    assert ran.code == 2 and "session 3f2a0000 has no pending approval" in ran.err
    assert len(daemon.calls("approval/respond")) == 1


UUID = "a" * 36


@pytest.mark.parametrize(
    ("typed", "open_now"),
    [("1:1", "1:10"), ("1:123456789012", "1:1234567890123"), (f"1:{UUID}", f"1:{UUID}#2")],
)
def test_the_beginning_of_a_counter_or_of_a_repeated_id_names_no_other(
    clisup: Run, daemon: FakeDaemon, opened: list[Any], typed: str, open_now: str
) -> None:
    def respond(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("it is not open", kind="approval_not_found")

    daemon.handlers["approval/respond"] = respond
    opened[:] = [approval(open_now)]
    assert clisup("approvals", "allow", typed).code != 0
    assert daemon.calls("approval/respond")[0]["approval_id"] == typed


# Layout


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, ["#", "SINCE", "TITLE", "ASKS"]),
        (80, ["#", "ID", "SINCE", "TITLE", "ASKS"]),
        (100, list(HEAD)),
        (200, list(HEAD)),
    ],
)
def test_a_narrow_terminal_loses_columns_and_no_line_wraps(width: int, shown: list[str]) -> None:
    asks = "Bash " + "make -C 漢字 " * 30
    rows = [["1", "3f2a0000/1:0e26d418", "5 min", "claude", "/home/me/src/app", "Tidy up the tests", asks]] * 2
    layout = laid_out(rows, width)
    assert layout.names == shown
    assert max(map(cells_of, layout.lines())) <= width
    empty = laid_out([["1", "3f2a0000/1:0e26d418", "5 min", "", "", "", asks]], width)
    assert empty.names == ["#", "ID", "SINCE", "ASKS"], "empty columns go first"


# Answers


QUESTION = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}


def test_questions_are_answered_by_numbers_labels_or_words(clisup: Run, daemon: FakeDaemon, opened: list[Any]) -> None:
    other = {**QUESTION, "question": "Why?"}
    opened[:] = [approval(tool_name="AskUserQuestion", input={"questions": [QUESTION, other]})]
    assert "question: Which? (and 1 more)" in clisup("approvals").out
    ran = clisup("approvals", "answer", "1", "2", "because")
    assert ran == (0, "allow: question: Which? (and 1 more)\n  Which?  B\n  Why?  because\n", "")
    (said,) = daemon.calls("approval/respond")
    assert said["updated_input"] == {"questions": [QUESTION, other], "answers": {"Which?": "B", "Why?": "because"}}


def test_questions_are_not_allowed_without_answers_and_wrong_ones_are_refused(
    clisup: Run, daemon: FakeDaemon, opened: list[Any]
) -> None:
    opened[:] = [approval(tool_name="AskUserQuestion", input={"questions": [QUESTION]})]
    ran = clisup("approvals", "allow", "1:0")
    assert ran.code == 2 and "hint: clisup approvals answer 1:0" in ran.err
    ran = clisup("approvals", "answer", "1:0", "7")
    assert ran.code == 2 and "there is no choice 7" in ran.err
    ran = clisup("approvals", "answer", "1:0")
    assert ran.code == 2 and "not a terminal" in ran.err
    assert clisup("approvals", "answer", "1:9", "1").code == 2
    assert not daemon.calls("approval/respond")
    assert clisup("approvals", "deny", "1:0").code == 0


def test_a_terminal_asks_for_the_answers(
    clisup: Run, daemon: FakeDaemon, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened[:] = [approval(tool_name="AskUserQuestion", input={"questions": [QUESTION]})]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    stdin = io.StringIO("9\n2\n")
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    ran = clisup("approvals", "answer", "1:0", stdin=stdin)
    assert ran.code == 0 and "  2) B" in ran.out and "there is no choice 9" in ran.out
    assert daemon.calls("approval/respond")[0]["updated_input"]["answers"] == {"Which?": "B"}
    nothing = io.StringIO("")
    monkeypatch.setattr(nothing, "isatty", lambda: True)
    ran = clisup("approvals", "answer", "1:0", stdin=nothing)
    assert ran.code == 2 and "stays open, because no answer came" in ran.err


def test_a_plan_is_approved_or_kept_in_planning(clisup: Run, daemon: FakeDaemon, opened: list[Any]) -> None:
    opened[:] = [approval(tool_name="ExitPlanMode", input={"plan": "# Move it"})]
    assert clisup("approvals", "answer", "1:0", "no").code == 0
    assert clisup("approvals", "allow", "1:0") == (0, "allow: plan: Move it\n", "")
    assert [said["decision"] for said in daemon.calls("approval/respond")] == ["deny", "allow"]


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
    assert "docs/how-to/approvals.md" in ran.err


def test_status_shows_how_many_wait(clisup: Run, daemon: FakeDaemon) -> None:
    from clisup.cli.status.columns import status_of

    assert status_of(daemon.summary(phase="approval", approvals=2)) == ("wants you (2)", "asking")


def test_what_is_no_name_of_an_approval_is_told_in_words(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["approval/list"] = lambda peer, params: {"approvals": []}
    ran = clisup("approvals", "allow", "1")
    assert ran.code == 2 and "no list has shown an approval with the number 1" in ran.err
    ran = clisup("approvals", "allow", "abc")
    assert ran.code == 2 and "approvals are named by their number, 1:0 or 3f2a9c1e/1:0" in ran.err
    assert not daemon.calls("approval/respond")
