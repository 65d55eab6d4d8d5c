"""`clisup run` against a fake daemon: what it asks for, what it shows, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from fake_daemon import SESSION, SILENCE, FakeDaemon, Peer

from clisup.client import sync_requests
from clisup.client.sync import Follower
from clisup.errors import UsageError

Run = Callable[..., Any]
Scene = Callable[[FakeDaemon], None]


def answered(daemon: FakeDaemon) -> None:
    daemon.emit("turn_started", run=1, prompt_preview="x")
    daemon.emit("content_delta", kind="text", text="Hello.", message_id="m1")
    daemon.emit("message", message_id="m1", blocks=[{"kind": "text", "text": "Hello."}])
    end(daemon, text="Hello.")


def end(daemon: FakeDaemon, outcome: str = "completed", **more: Any) -> None:
    daemon.emit("turn_completed", outcome=outcome, **({"text": ""} | more))


def plays(daemon: FakeDaemon, *scenes: Scene) -> None:
    """The daemon plays one scene for each prompt."""
    left = list(scenes)

    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.emit("prompt_accepted", delivery="delivered")
        left.pop(0)(daemon)
        return {"turn_id": "t1", "seq": 1, "delivery": "delivered"}

    daemon.handlers["session/prompt"] = prompt


def test_the_answer_is_on_stdout_and_the_session_on_stderr(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, answered)
    assert clisup("run", "-b", "demo", "hi") == (
        0,
        "Hello.\n",
        f"session {SESSION} (demo)\ncontinue with: clisup run --session {SESSION}\n",
    )


def test_the_time_the_tokens_and_the_cost_come_at_the_end(clisup: Run, daemon: FakeDaemon) -> None:
    used = {"usage": {"input_tokens": 1000, "output_tokens": 200}, "cost_usd": 0.01, "duration_s": 2.31}
    plays(daemon, lambda daemon: end(daemon, text="Hello.", **used))
    assert clisup("run", "-b", "demo", "hi").err.splitlines()[-1] == (
        f"2.3 s, 1.2k tokens, $0.0100 (continue with: clisup run --session {SESSION})"
    )
    plays(daemon, lambda daemon: end(daemon, text="Hello.", **used, cost_source="estimated"))
    assert "$0.0100 (estimated) (continue" in clisup("run", "-b", "demo", "hi").err


def test_thinking_is_shown_beside_the_answer_if_asked_for(clisup: Run, daemon: FakeDaemon) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("message", message_id="m1", blocks=[{"kind": "thinking", "text": "Hm.\x1b[2J"}])
        answered(daemon)

    plays(daemon, scene, scene)
    ran = clisup("run", "-b", "demo", "--show-thinking", "hi")
    assert ran.out == "Hello.\n" and "thinking: Hm.\N{REPLACEMENT CHARACTER}[2J\n" in ran.err
    assert "Hm." not in clisup("run", "-b", "demo", "hi").err


@pytest.mark.parametrize("where", ["prompt", "system prompt"])
def test_what_is_larger_than_the_daemon_reads_is_a_usage_error(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, where: str
) -> None:
    introduce = daemon.handlers["initialize"]
    daemon.handlers["initialize"] = lambda peer, params: introduce(peer, params) | {"limits": {"max_frame_bytes": 1000}}
    plays(daemon, answered)
    (tmp_path / "big.txt").write_text("a" * 2000)
    options = ["--system-prompt-file", str(tmp_path / "big.txt")] if where == "system prompt" else []
    ran = clisup("run", "-b", "demo", *options, "-", stdin="hi" if options else "a" * 2000)
    assert ran == (
        2,
        "",
        "clisup: the frame has more than 1000 bytes\n  hint: send less, or raise daemon.max_frame_bytes\n",
    )


def test_it_subscribes_before_it_prompts(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, answered)
    clisup("run", "-b", "demo", "hi")
    names = [name for name, _ in daemon.requests]
    assert names.index("session/subscribe") < names.index("session/prompt")


def test_all_options_of_a_session_reach_the_daemon(clisup: Run, daemon: FakeDaemon, tmp_path: Path) -> None:
    plays(daemon, answered)
    (tmp_path / "system").write_text("Be brief.")
    (tmp_path / "mcp").write_text('{"mcpServers": {}}')
    clisup(
        "run", "-b", "demo", "-C", str(tmp_path), "--model", "m", "--permission-mode", "plan", "--label", "a=b=c", "--label",
        "d=", "--system-prompt-file", str(tmp_path / "system"), "--mcp-config", str(tmp_path / "mcp"), "--expand",
        "--budget-usd", "1.5", "--budget-tokens", "900", "hi",
    )  # fmt: skip
    assert daemon.calls("session/new") == [{
        "backend": "demo", "cwd": str(tmp_path), "model": "m", "permission_mode": "plan", "labels": {"a": "b=c", "d": ""},
        "budget": {"usd": 1.5, "tokens": 900},
        "system_prompt": "Be brief.", "mcp_config": {"mcpServers": {}},
    }]  # fmt: skip
    prompt = daemon.calls("session/prompt")[0]
    assert (prompt["prompt"], prompt["expand"]) == ("hi", True)


@pytest.mark.parametrize("args", [("-",), ()])
def test_a_pipe_is_the_prompt(clisup: Run, daemon: FakeDaemon, args: tuple[str, ...]) -> None:
    plays(daemon, answered)
    assert clisup("run", "-b", "demo", *args, stdin="from a pipe\n").code == 0
    assert daemon.calls("session/prompt")[0]["prompt"] == "from a pipe\n"


def test_an_empty_pipe_is_no_prompt(clisup: Run, daemon: FakeDaemon) -> None:
    ran = clisup("run", "-b", "demo", stdin="")
    assert (ran.code, daemon.requests) == (2, [])


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused_before_anything_is_asked(clisup: Run, daemon: FakeDaemon, prompt: str) -> None:
    ran = clisup("run", "-b", "demo", prompt)
    assert (ran.code, daemon.requests) == (2, [])
    assert ran.err == "clisup: cannot send an empty prompt\n  hint: give it at least one character\n"


@contextmanager
def holding(text: str, kind: str, tmp_path: Path) -> Iterator[TextIO]:
    """A stdin of each kind that holds `text`, and whose other end stays open."""
    if kind in ("file", "file of a loop"):
        (tmp_path / "stdin").write_text(text)
        with (tmp_path / "stdin").open() as file:
            os.lseek(file.fileno(), 4 if kind != "file" else 0, os.SEEK_SET)  # so far a shell's `while read` has come
            yield file
        return
    if kind == "socket":
        ours, theirs = (end.detach() for end in socket.socketpair())
    else:
        theirs, ours = os.pipe()
    with open(theirs) as stdin, open(ours, "w") as other:
        other.write(text)
        other.flush()
        yield stdin


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("pipe", "the diff\n", True),
        ("file", "the diff\n", True),
        ("pipe", "", False),
        ("file", "", False),
        ("file of a loop", "the\ndiff\n", False),
        ("socket", "the diff\n", False),
    ],
)
def test_text_on_stdin_beside_a_prompt_is_said_to_be_unread_and_never_waited_for(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, kind: str, text: str, said: bool
) -> None:
    plays(daemon, answered)
    with holding(text, kind, tmp_path) as stdin:
        ran = clisup("run", "-b", "demo", "Review this", stdin=stdin)
    assert (ran.code, ran.out) == (0, "Hello.\n")
    assert ("stdin is not read: give - as PROMPT" in ran.err) is said


def test_a_session_whose_first_prompt_is_refused_is_closed_again(clisup: Run, daemon: FakeDaemon) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot use this schema", kind="unsupported")

    daemon.handlers["session/prompt"] = refuse
    daemon.handlers["session/close"] = lambda peer, params: {}
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, "cannot use this schema" in ran.err) == (2, True)
    assert daemon.calls("session/close") == [{"session_id": SESSION}]
    assert clisup("run", "--session", "3f2a", "hi").code == 2
    assert clisup("run", "--session", SESSION, "-b", "demo", "hi").code == 2
    assert len(daemon.calls("session/close")) == 1  # a session that somebody has named is not ours to close


def test_a_session_whose_turn_fails_stays_open(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, lambda daemon: end(daemon, "failed", error={"kind": "server", "message": "it went wrong"}))
    assert clisup("run", "-b", "demo", "hi").code == 1
    assert daemon.calls("session/close") == []


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("\udcff hi",), "send the prompt"),
        (("-C", "/tmp/\udcff", "hi"), "use directory '/tmp/\\udcff'"),
        (("--model", "\udcff", "hi"), "name the model"),
        (("--label", "a=b", "--label", "c=\udcff", "hi"), "set the label"),
    ],
)
def test_what_is_not_utf_8_is_refused_before_anything_is_opened(
    clisup: Run, daemon: FakeDaemon, args: tuple[str, ...], what: str
) -> None:
    ran = clisup("run", "-b", "demo", *args)
    assert ran.code == 2
    assert ran.err.startswith(f"clisup: cannot {what}, because it is not UTF-8\n")
    assert daemon.calls("session/new") == []


def test_a_working_directory_whose_name_is_not_utf_8_is_refused(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "\udcff").mkdir()
    monkeypatch.chdir(tmp_path / "\udcff")
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, "because it is not UTF-8\n  hint: rename it" in ran.err) == (2, True)
    assert daemon.calls("session/new") == []


@pytest.mark.parametrize("args", [("run", "-b", "demo", "hi"), ("doctor",)])
def test_a_working_directory_that_was_removed_is_said_so(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    ran = clisup(*args)
    assert (ran.code, "cannot tell the working directory, because it is gone" in ran.err) == (2, True)


def test_a_terminal_without_a_prompt_is_a_usage_error(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clisup.cli.commands.run.sys", FakeSys())
    ran = clisup("run", "-b", "demo")
    assert ran.code == 2
    assert "because stdin is a terminal" in ran.err


class FakeSys:
    class stdin:  # the name of what it stands for
        @staticmethod
        def isatty() -> bool:
            return True


def test_without_a_backend_the_daemon_chooses(clisup: Run, daemon: FakeDaemon, tmp_path: Path) -> None:
    plays(daemon, answered)
    assert clisup("run", "-C", str(tmp_path), "hi").code == 0
    assert daemon.calls("session/new") == [{"cwd": str(tmp_path)}]


def test_a_backend_with_a_wrong_letter_gets_the_right_name(clisup: Run, daemon: FakeDaemon) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("it is not configured", kind="backend_not_found", hint="configured are: demo")

    daemon.handlers["session/new"] = refuse
    assert "hint: did you mean: -b demo; configured are: demo" in clisup("run", "-b", "dmeo", "hi").err
    assert "did you mean" not in clisup("run", "-b", "zzz", "hi").err


def test_the_further_options_of_a_session_and_a_turn_reach_the_daemon(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path
) -> None:
    plays(daemon, answered, answered)
    options = ["--title", "Tidy up", "--cli-tools", "Read, Grep", "--resume", "native-1", "--timeout", "10m"]
    assert clisup("run", "-b", "demo", "-C", str(tmp_path), *options, "hi").code == 0
    assert daemon.calls("session/new") == [{
        "backend": "demo", "cwd": str(tmp_path), "title": "Tidy up", "cli_tools": ["Read", "Grep"],
        "resume_native_id": "native-1",
    }]  # fmt: skip
    assert daemon.calls("session/prompt")[0]["timeout_s"] == 600
    assert clisup("run", "-b", "demo", "--cli-tools", "none", "hi").code == 0
    assert daemon.calls("session/new")[1]["cli_tools"] == "none"


@pytest.mark.parametrize("time", ["0", "x", "10y", "-5s", "2000d", "1e3"])
def test_a_time_that_is_none_is_refused(clisup: Run, daemon: FakeDaemon, time: str) -> None:
    ran = clisup("run", "-b", "demo", "--timeout", time, "hi")
    assert (ran.code, daemon.requests) == (2, [])
    assert "is no time: give a number with s, m, h, d or w" in ran.err


def rows(daemon: FakeDaemon, *changed: dict[str, Any]) -> None:
    listed = [daemon.summary(turn_id=None, **row) for row in changed]
    daemon.handlers["session/list"] = lambda peer, params: {"sessions": listed, "next_cursor": None}


def test_continue_takes_the_session_of_this_directory_that_worked_last(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here, ended = str(tmp_path), lambda day: {"last_turn": {"ended_at": f"2026-01-{day:02}T00:00:00Z"}}
    rows(
        daemon,
        {"session_id": "a" * 36, "cwd": here, "created_at": "2026-01-05T00:00:00Z"},
        {"session_id": "b" * 36, "cwd": "/elsewhere", **ended(30)},
        {"session_id": SESSION, "cwd": here, **ended(9)},
        {"session_id": "c" * 36, "cwd": here, "backend": "other", **ended(20)},
    )
    plays(daemon, answered)
    assert clisup("run", "-c", "-b", "demo", "hi").code == 0
    assert daemon.calls("session/prompt")[0]["session_id"] == SESSION
    assert daemon.calls("session/new") == []


def test_continue_needs_a_session_and_goes_with_no_option_of_a_new_one(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path
) -> None:
    rows(daemon)
    ran = clisup("run", "-c", "-C", str(tmp_path), "-b", "demo", "hi")
    assert ran.code == 4 and f"no open session of demo in {tmp_path}" in ran.err
    for wrong in (["--session", "3f2a"], ["--model", "m"], ["--rm"]):
        assert clisup("run", "-c", *wrong, "hi").code == 2
    assert clisup("run", "--session", "3f2a", "--rm", "hi").code == 2
    assert daemon.calls("session/prompt") == []


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_rm_deletes_the_session_when_its_turn_is_over(clisup: Run, daemon: FakeDaemon, outcome: str) -> None:
    plays(daemon, lambda daemon: end(daemon, outcome, text="Hello."))
    daemon.handlers |= {"session/close": lambda peer, params: {}, "session/delete": lambda peer, params: {}}
    ran = clisup("run", "-b", "demo", "--rm", "hi")
    assert [name for name, _ in daemon.requests][-2:] == ["session/close", "session/delete"]
    assert "continue with" not in ran.err


def test_rm_says_so_where_the_session_cannot_be_deleted(clisup: Run, daemon: FakeDaemon) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("it is busy", kind="session_busy")

    plays(daemon, answered)
    daemon.handlers["session/close"] = refuse
    ran = clisup("run", "-b", "demo", "--rm", "hi")
    assert (ran.code, ran.out) == (0, "Hello.\n")
    assert f"the session stays: it is busy; delete it: clisup delete {SESSION}" in ran.err


@pytest.mark.parametrize(("option", "content"), [("--mcp-config", "nonsense"), ("--mcp-config", "[]")])
def test_a_wrong_file_is_told_before_anything_is_opened(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, option: str, content: str
) -> None:
    (tmp_path / "f").write_text(content)
    assert clisup("run", "-b", "demo", option, str(tmp_path / "f"), "hi").code == 2
    assert daemon.calls("session/new") == []


def test_a_label_without_a_value_is_refused(clisup: Run, daemon: FakeDaemon) -> None:
    assert "not of the form K=V" in clisup("run", "-b", "demo", "--label", "x", "hi").err


def test_a_session_is_gone_on_with_by_the_beginning_of_its_id(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="old", message="from before")
    plays(daemon, answered)
    ran = clisup("run", "--session", "3f2a", "hi")
    assert (ran.code, ran.out) == (0, "Hello.\n")
    assert "from before" not in ran.err
    assert daemon.calls("session/new") == []
    assert daemon.calls("session/subscribe")[0]["after_seq"] == 1


def test_what_a_session_is_cannot_be_changed(clisup: Run, daemon: FakeDaemon) -> None:
    assert "cannot set model of session" in clisup("run", "--session", "3f2a", "--model", "x", "hi").err
    assert "belongs to demo" in clisup("run", "--session", "3f2a", "-b", "claude", "hi").err


def test_a_whole_new_id_with_a_backend_opens_that_session(clisup: Run, daemon: FakeDaemon) -> None:
    def unknown_at_first(peer: Peer, params: dict[str, Any]) -> Any:
        if not daemon.calls("session/new"):
            raise UsageError("cannot find it", kind="session_not_found")
        return daemon.summary()

    daemon.handlers["session/get"] = unknown_at_first
    plays(daemon, answered)
    assert clisup("run", "--session", SESSION.upper(), "-b", "demo", "hi").code == 0
    assert daemon.calls("session/new")[0]["session_id"] == SESSION


def test_tools_denials_retries_and_warnings_go_to_stderr(clisup: Run, daemon: FakeDaemon) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("tool_use", tool_use_id="u", name="Bash", input={"command": "ls -la"})
        daemon.emit("tool_result", tool_use_id="u", content="no such file", is_error=True)
        daemon.emit("retry", attempt=1, max_attempts=10, delay_s=0.5, error={"kind": "overloaded", "message": "busy"})
        daemon.emit("watchdog", action="warned", phase="model", idle_s=144.0, limit_s=180.0)
        daemon.emit("stderr", text="a warning")
        daemon.emit("rate_limit", status="allowed")
        daemon.emit("rate_limit", status="rejected", limit_type="five_hour")
        answered(daemon)

    plays(daemon, scene)
    ran = clisup("run", "-b", "demo", "hi")
    assert ran.out == "Hello.\n"
    assert ran.err.splitlines()[1:-1] == [
        "tool: Bash ls -la",
        "tool failed: error: no such file",
        "retry: attempt 1 of 10, in 0.5 s, overloaded: busy",
        "watchdog: warned in phase model, silent for 2 min, limit 3 min",
        "stderr: a warning",
        "rate limit: rejected, five_hour",
    ]


@pytest.mark.parametrize("tty", [False, True])
def test_a_line_beside_the_answer_is_a_line_of_its_own(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tty: bool
) -> None:
    """Where both go to one place, as on a terminal and in the log of a CI job."""

    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("content_delta", kind="text", text="one", message_id="m1")
        daemon.emit("message", message_id="m1", blocks=[{"kind": "text", "text": "one"}])
        daemon.emit("tool_use", tool_use_id="u", name="Bash", input={"command": "echo two"})
        daemon.emit("tool_result", tool_use_id="u", content="two")
        daemon.emit("message", message_id="m2", blocks=[{"kind": "text", "text": "three"}])
        daemon.emit("message", message_id="m3", synthetic=True, blocks=[{"kind": "text", "text": "No more."}])
        end(daemon, text="three")

    plays(daemon, scene)
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = clisup("run", "-b", "demo", "hi").out.splitlines()
    assert lines[1:-1] == ["one", "tool: Bash echo two", "  -> two", "three", "No more."]


def test_another_turns_events_are_not_shown(clisup: Run, daemon: FakeDaemon) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("message", "t0", message_id="m0", blocks=[{"kind": "text", "text": "not mine"}])
        daemon.emit("turn_completed", "t0", outcome="completed", text="not mine")
        answered(daemon)

    plays(daemon, scene)
    assert clisup("run", "-b", "demo", "hi").out == "Hello.\n"


def test_a_terminal_streams_and_cannot_be_driven_by_the_answer(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("content_delta", kind="text", text="a\033[2Jb", message_id="m1")
        daemon.emit("retracted", message_id="m1", from_index=0, reason="cut")
        answered(daemon)

    plays(daemon, scene)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ran = clisup("run", "-b", "demo", "hi")
    assert ran.out == "Hello.\n", "a block that was not complete was never shown"
    plays(daemon, scene)
    monkeypatch.setenv("TERM", "dumb")
    ran = clisup("run", "-b", "demo", "hi")
    assert ran.out == "a\N{REPLACEMENT CHARACTER}[2Jb\nHello.\n"
    assert "[text withdrawn by the CLI]" in ran.err


def test_json_prints_every_envelope_and_nothing_else(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, answered)
    ran = clisup("run", "-b", "demo", "--json", "hi")
    assert [json.loads(line) for line in ran.out.splitlines()] == daemon.events


def test_a_large_answer_is_fetched_by_pages(clisup: Run, daemon: FakeDaemon) -> None:
    whole = b"x" * 3_000_000

    def page(peer: Peer, params: dict[str, Any]) -> Any:
        part = whole[params["offset"] :][: 1 << 20]
        eof = params["offset"] + len(part) == len(whole)
        return {"data_base64": base64.b64encode(part).decode(), "size": len(whole), "eof": eof}

    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("message", message_id="m", blocks=[{"kind": "text", "text": "xxx", "blob": "blob-1-out-5-0.0"}])
        end(daemon, text="xxx", blob="blob-1-out-final.1")

    daemon.handlers["session/blob"] = page
    plays(daemon, scene)
    assert clisup("run", "-b", "demo", "hi").out == whole.decode() + "\n"


@pytest.mark.parametrize(
    ("kind", "outcome", "code", "hint"),
    [
        ("authentication", "failed", 69, "log in with the CLI itself (demo), or set its key in [backends.demo] env"),
        ("crashed", "failed", 1, f"clisup logs {SESSION}"),
        ("model_not_found", "failed", 1, f"clisup set {SESSION} --model MODEL"),
        ("idle_timeout", "timed_out", 124, ""),
        ("cancelled", "interrupted", 130, ""),
    ],
)
def test_the_exit_code_is_the_outcome(
    clisup: Run, daemon: FakeDaemon, kind: str, outcome: str, code: int, hint: str
) -> None:
    plays(daemon, lambda daemon: end(daemon, outcome, error={"kind": kind, "message": "it went wrong"}))
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, ran.out) == (code, "")
    assert f"{kind}: it went wrong" in ran.err
    assert hint in ran.err


def test_a_key_that_the_daemon_holds_back_is_named_with_the_way_to_pass_it(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, lambda daemon: end(daemon, "failed", error={"kind": "authentication", "message": "Not logged in"}))
    daemon.handlers["backend/env"] = lambda peer, params: {"held_back": ["DEMO_KEY", "DEMO_URL"]}
    ran = clisup("run", "-b", "demo", "hi")
    assert ran.err.splitlines()[-1] == (
        "  hint: the daemon has DEMO_KEY and DEMO_URL and holds them back: to pass them on, set pass_env = "
        '["DEMO_KEY", "DEMO_URL"] in [backends.demo], then clisup daemon reload; or log in with the CLI itself (demo), '
        "or set its key in [backends.demo] env; then try again; see clisup doctor demo (login, environment)"
    )


def test_a_key_that_only_the_shell_has_is_named_with_the_way_to_pass_it(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_KEY", "value")
    monkeypatch.setenv("PASSED_KEY", "value")
    plays(daemon, lambda daemon: end(daemon, "failed", error={"kind": "authentication", "message": "Not logged in"}))
    kept = [{"name": "PASSED_KEY", "rule": "pass_env"}]
    keys = ["DEMO_KEY", "PASSED_KEY", "NOT_SET"]
    daemon.handlers["backend/env"] = lambda peer, params: {"held_back": [], "kept": kept, "keys": keys}
    err = clisup("run", "-b", "demo", "hi").err
    assert (
        "hint: DEMO_KEY is set in this shell, but demo did not get it: clisup setup passes it on, or set "
        'pass_env = ["DEMO_KEY"] in [backends.demo]'
    ) in err
    assert "PASSED_KEY" not in err and "value" not in err


def test_a_variable_that_the_cli_misses_by_name_and_the_daemon_holds_back_is_named(
    clisup: Run, daemon: FakeDaemon
) -> None:
    error = {"kind": "authentication", "message": "Missing environment variable: `MY_KEY`, LD_PRELOAD or NOT_THERE."}
    plays(daemon, lambda daemon: end(daemon, "failed", error=error))
    dropped = [("MY_KEY", "unlisted"), ("OTHER_KEY", "unlisted"), ("LD_PRELOAD", "common.deny:LD_*")]
    report = {"held_back": [], "dropped": [{"name": name, "rule": rule} for name, rule in dropped]}
    daemon.handlers["backend/env"] = lambda peer, params: report
    err = clisup("run", "-b", "demo", "hi").err
    assert 'the daemon has MY_KEY and holds it back: to pass it on, set pass_env = ["MY_KEY"]' in err


@pytest.mark.parametrize("tty", [False, True])
def test_what_the_cli_says_in_the_models_place_is_no_answer_and_said_once(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tty: bool
) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("message", message_id="m", synthetic=True, blocks=[{"kind": "text", "text": "Not logged in"}])
        end(daemon, "failed", error={"kind": "authentication", "message": "Not logged in"})

    plays(daemon, scene)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, ran.out) == (69, "")
    assert ran.err.count("Not logged in") == 1


def test_the_last_words_of_a_crash_are_said_once(clisup: Run, daemon: FakeDaemon) -> None:
    crashed = {"kind": "crashed", "message": "demo exited with code 1; its last words on stderr: TypeError\nat x"}

    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("stderr", text="TypeError")
        end(daemon, "failed", error=crashed)

    plays(daemon, scene, lambda daemon: end(daemon, "failed", error=crashed))
    assert clisup("run", "-b", "demo", "hi").err.count("TypeError") == 1
    assert clisup("run", "-b", "demo", "hi").err.count("TypeError") == 1


def test_a_denied_tool_is_exit_77_and_says_how_to_allow_it(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, lambda daemon: end(daemon, text="I could not.", denied=["Write", "Bash", "Write"]))
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, ran.out) == (77, "I could not.\n")
    assert "the CLI was denied: Bash, Write" in ran.err
    assert "hint: the CLI did not ask; in a new session let claude ask you (clisup run --live)" in ran.err
    assert "--permission-mode" in ran.err


def test_a_denied_tool_that_was_asked_for_gets_no_advice_to_be_asked(clisup: Run, daemon: FakeDaemon) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("approval_requested", approval_id="1:0", tool_name="Bash", input={})
        end(daemon, denied=["Bash"])

    plays(daemon, scene)
    ran = clisup("run", "-b", "demo", "hi")
    assert "hint: allow it when it asks (clisup approvals)" in ran.err and "--live" not in ran.err


def test_a_session_that_is_deleted_at_the_end_is_in_no_hint(clisup: Run, daemon: FakeDaemon) -> None:
    plays(daemon, lambda daemon: end(daemon, "failed", error={"kind": "crashed", "message": "it went wrong"}))
    daemon.handlers |= {name: lambda peer, params: {"ok": True} for name in ("session/close", "session/delete")}
    ran = clisup("run", "-b", "demo", "--rm", "hi")
    assert "hint: without --rm the session stays, with its events" in ran.err
    assert SESSION not in ran.err.partition("hint: ")[2]


@pytest.mark.parametrize(("transcript", "said"), [
    ("answered", "its transcript holds the prompt and the beginning of an answer"),
    ("prompt_found", "its transcript holds the prompt, but no answer"),
    ("prompt_not_found", "its transcript does not hold the prompt"),
    ("missing", "it has no transcript of this session"),
    ("unreadable", "its transcript cannot be read"),
    ("of a newer daemon", "its transcript is unknown"),
])  # fmt: skip
def test_an_uncertain_delivery_says_what_is_known_and_sends_nothing_again(
    clisup: Run, daemon: FakeDaemon, transcript: str, said: str
) -> None:
    error = {"kind": "crashed", "message": "its exit is unknown"}
    unsure = {"delivery": "uncertain", "evidence": {"transcript": transcript}}
    plays(daemon, lambda daemon: end(daemon, "failed", error=error, **unsure))
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot tell whether the CLI received the prompt (crashed: its exit is unknown)" in ran.err
    assert said in ran.err and "send the prompt again only if" in ran.err
    assert len(daemon.calls("session/prompt")) == 1


def test_ctrl_c_interrupts_the_turn_and_waits_for_its_end(clisup: Run, daemon: FakeDaemon) -> None:
    def interrupt(peer: Peer, params: dict[str, Any]) -> Any:
        end(daemon, "interrupted")
        return {"turn_id": "t1", "outcome": "interrupted"}

    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("notice", code="go", message="")

    daemon.handlers["session/interrupt"] = interrupt
    plays(daemon, scene)
    with ctrl_c_at(daemon, 1):
        ran = clisup("run", "-b", "demo", "hi")
    assert ran.code == 130
    assert daemon.calls("session/interrupt") == [{"session_id": SESSION, "turn_id": "t1", "mode": "graceful"}]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_kills_and_the_third_leaves(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/interrupt"] = lambda peer, params: SILENCE
    plays(daemon, lambda daemon: daemon.emit("notice", code="go", message=""))
    with ctrl_c_at(daemon, 3):
        ran = clisup("run", "-b", "demo", "hi")
    assert ran.code == 130
    assert [params["mode"] for params in daemon.calls("session/interrupt")] == ["graceful", "kill"]


class ctrl_c_at:  # reads as a word in a with statement
    """Sends SIGINT when the first event is shown, `times` times."""

    def __init__(self, daemon: FakeDaemon, times: int) -> None:
        self._patch = pytest.MonkeyPatch()
        self._times = times
        self._daemon = daemon

    def _heard(self, times: int) -> None:
        for _ in range(1000):
            if len(self._daemon.calls("session/interrupt")) >= times:
                return
            threading.Event().wait(0.01)
        raise AssertionError("the daemon was not asked to interrupt")

    def __enter__(self) -> None:
        from clisup.cli.views.answer import Screen

        write = Screen.note

        def note(screen: Screen, text: str) -> None:
            write(screen, text)
            if text.startswith("notice: go"):
                for n in range(self._times):
                    os.kill(os.getpid(), signal.SIGINT)
                    self._heard(n + 1)  # two at once would count as one

        self._patch.setattr(Screen, "note", note)

    def __exit__(self, *exc: object) -> None:
        self._patch.undo()


def test_a_daemon_that_stays_away_leaves_the_id_and_the_way_to_the_rest(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("message", message_id="m1", blocks=[{"kind": "text", "text": "So far."}])
        threading.Timer(0.2, daemon.stop).start()

    for module in ("clisup.client.reconnect", "clisup.client.sync_requests", "clisup.cli.turn"):
        monkeypatch.setattr(f"{module}.RECONNECT_S", 0.3, raising=False)
    plays(daemon, scene)
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, ran.out) == (3, "So far.\n")
    assert ran.err.startswith(f"session {SESSION} (demo)\n")
    assert f"clisup attach {SESSION} shows the rest once a daemon runs again" in ran.err


def test_a_restart_in_the_middle_is_survived_and_told(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def comes_back() -> None:
        daemon.start()
        daemon.emit("message", message_id="m1", blocks=[{"kind": "text", "text": "Hello."}])
        end(daemon, text="Hello.")

    def once(seconds: float) -> None:
        monkeypatch.undo()
        comes_back()

    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("notice", code="go", message="")

    real = Follower._come_back

    def lost(follower: Any, error: Any) -> None:
        monkeypatch.setattr(sync_requests.time, "sleep", once)
        real(follower, error)

    def note(screen: Any, text: str) -> None:
        print(text, file=sys.stderr)
        if text.startswith("notice: go"):
            daemon.stop()

    monkeypatch.setattr(Follower, "_come_back", lost)
    monkeypatch.setattr("clisup.cli.turn.Screen.note", note)
    plays(daemon, scene)
    ran = clisup("run", "-b", "demo", "hi")
    assert (ran.code, ran.out) == (0, "Hello.\n")
    assert "[connection lost; trying again for 30 s]" in ran.err
    assert "[connected again]" in ran.err


def test_a_prompt_whose_answer_was_lost_is_sent_again_with_the_same_key(clisup: Run, daemon: FakeDaemon) -> None:
    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("session/prompt")) == 1:
            peer.hang_up()
            return SILENCE
        answered(daemon)
        return {"turn_id": "t1", "seq": 1, "delivery": "duplicate"}

    daemon.handlers["session/prompt"] = prompt
    assert clisup("run", "-b", "demo", "hi").out == "Hello.\n"
    first, second = daemon.calls("session/prompt")
    assert first["key"] == second["key"]


def test_a_busy_daemon_is_exit_75(clisup: Run, daemon: FakeDaemon) -> None:
    def full(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot queue more prompts, because 100 wait already", kind="limit_exceeded")

    daemon.handlers["session/prompt"] = full
    assert clisup("run", "-b", "demo", "hi").code == 75


def test_a_queued_prompt_says_its_place(clisup: Run, daemon: FakeDaemon) -> None:
    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        answered(daemon)
        return {"turn_id": "t1", "seq": 1, "delivery": "queued", "position": 2}

    daemon.handlers["session/prompt"] = prompt
    assert "[queued at 2: another turn is running]" in clisup("run", "-b", "demo", "hi").err


def test_images_go_before_the_prompt_each_as_what_its_bytes_say(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path
) -> None:
    files = {"a.png": (b"\x89PNG\r\n\x1a\n!", "image/png"), "misnamed.png": (b"GIF89a!", "image/gif")}
    blocks = []
    for name, (data, media_type) in files.items():
        (tmp_path / name).write_bytes(data)
        blocks.append({"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()})
    plays(daemon, answered)
    flags = [word for name in files for word in ("--image", str(tmp_path / name))]
    assert clisup("run", "-b", "demo", *flags, "What?")[0] == 0
    (params,) = [params for name, params in daemon.requests if name == "session/prompt"]
    assert params["prompt"] == [*blocks, {"type": "text", "text": "What?"}]


def schema_file(tmp_path: Path) -> list[str]:
    (tmp_path / "port.json").write_text('{"type": "object"}')
    return ["--output-schema", str(tmp_path / "port.json")]


def test_an_answer_by_a_schema_is_one_line_of_json_and_nothing_else(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path
) -> None:
    def scene(daemon: FakeDaemon) -> None:
        daemon.emit("message", message_id="m1", blocks=[{"kind": "text", "text": "I look."}])
        daemon.emit("tool_use", tool_use_id="u", name="StructuredOutput", input={"port": 80})
        end(daemon, text='{"port": 80}', structured={"port": 80, "why": "\u00fc"})

    plays(daemon, scene)
    code, out, _ = clisup("run", "-b", "demo", *schema_file(tmp_path), "At which port?")
    assert (code, out) == (0, '{"port":80,"why":"\u00fc"}\n')
    assert daemon.calls("session/prompt")[0]["output_schema"] == {"type": "object"}


def test_words_in_the_place_of_a_value_are_a_failure(clisup: Run, daemon: FakeDaemon, tmp_path: Path) -> None:
    plays(daemon, answered)
    code, out, err = clisup("run", "-b", "demo", *schema_file(tmp_path), "At which port?")
    assert (code, out) == (1, "") and "Hello." in err and "--session" in err


def test_a_schema_that_is_no_object_is_refused_before_a_session_is_opened(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path
) -> None:
    (tmp_path / "list.json").write_text("[1]")
    code, _, err = clisup("run", "-b", "demo", "--output-schema", str(tmp_path / "list.json"), "What?")
    assert code == 2 and "JSON object" in err and not daemon.calls("session/new")


def test_a_file_that_is_no_image_is_refused_before_a_session_is_opened(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path
) -> None:
    (tmp_path / "notes.png").write_text("words")
    code, _, err = clisup("run", "-b", "demo", "--image", str(tmp_path / "notes.png"), "What?")
    assert code == 2 and "models do not accept this kind of file" in err and "image/webp" in err
    assert not daemon.requests
