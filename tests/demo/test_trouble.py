"""What goes wrong on purpose, and what signals do, in a real process."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.fakecli.directives import ERROR_KINDS, ORPHAN_KINDS

if TYPE_CHECKING:
    from tests.demo.conftest import Demo


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9), (signal.SIGQUIT, -3)]
)
def test_a_signal_ends_it_without_a_result(demo: Demo, signum: signal.Signals, code: int) -> None:
    live = demo.start("@text partial\n@stall")
    live.wait_for(b'"text":"partial"')
    run = live.send(signum)
    assert (run.code, run.results) == (code, [])


def test_sigint_keeps_the_partial_text_and_ends_with_a_result(demo: Demo) -> None:
    live = demo.start("@text partial\n@stall")
    live.wait_for(b'"text":"partial"')
    run = live.send(signal.SIGINT)
    assert run.code == 0
    (aborted,) = [frame for frame in run.of("assistant") if frame.get("aborted")]
    assert aborted["message"]["content"][0]["text"] == "partial"
    assert run.of("user")[0]["message"]["content"][0]["text"] == "[Request interrupted by user]"
    result = run.results[0]
    assert (result["subtype"], result["is_error"], result["terminal_reason"]) == (
        "error_during_execution", True, "aborted_streaming",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("signum", "code", "content"), [(signal.SIGTERM, 143, "Exit code 137"), (signal.SIGINT, 0, "The user doesn't want")]
)
def test_a_signal_kills_the_running_tool(demo: Demo, signum: signal.Signals, code: int, content: str) -> None:
    live = demo.start("@bash echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 60")
    assert demo.eventually((demo.cwd / "pid").exists)
    run = live.send(signum)
    assert run.code == code
    assert run.of("user")[0]["message"]["content"][0]["content"].startswith(content)
    assert [r["terminal_reason"] for r in run.results] == (["aborted_tools"] if signum == signal.SIGINT else [])
    assert not demo.is_alive(int((demo.cwd / "pid").read_text()))


def test_sigkill_lets_the_running_tool_live(demo: Demo) -> None:
    live = demo.start("@bash echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 60")
    assert demo.eventually((demo.cwd / "pid").exists)
    live.send(signal.SIGKILL)
    pid = int((demo.cwd / "pid").read_text())
    assert demo.is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_sigterm_can_be_ignored(demo: Demo) -> None:
    live = demo.start("@ignore-term\n@ignore-int\n@text deaf\n@wait-file go\n@text still here")
    live.wait_for(b"deaf")
    live.process.send_signal(signal.SIGTERM)
    live.process.send_signal(signal.SIGINT)
    (demo.cwd / "go").touch()
    run = live.end()
    assert (run.code, run.text) == (0, "deaf\nstill here")


def test_sigterm_ends_a_process_whose_reader_is_asleep(demo: Demo) -> None:
    live = demo.start("@text begun\n@stream 100000")
    live.wait_for(b"begun")
    live.process.send_signal(signal.SIGTERM)
    assert live.process.wait(timeout=20) == 143


def test_a_killed_session_can_be_resumed(demo: Demo) -> None:
    session = str(uuid.uuid4())
    live = demo.start("@text partial\n@stall", "--session-id", session)
    live.wait_for(b'"text":"partial"')
    live.send(signal.SIGKILL)
    assert demo.run("@count", "--resume", session).text == "turn 2"


def test_it_goes_on_when_its_reader_has_gone(demo: Demo) -> None:
    live = demo.start("@text one\n@wait-file go\n@stream 100\n@bash touch effect")
    live.wait_for(b"one")
    assert live.process.stdout is not None
    live.process.stdout.close()
    (demo.cwd / "go").touch()
    assert live.process.wait(timeout=20) == 0
    assert (demo.cwd / "effect").exists()


@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_a_failure_is_one_error_result_and_exit_code_1(demo: Demo, kind: str) -> None:
    run = demo.run(f"@error {kind}")
    assert run.code == 1
    (result,) = run.results
    assert result["is_error"]
    assert result["subtype"] == {"max_turns": "error_max_turns", "budget": "error_max_budget_usd"}.get(kind, "success")
    assert result.get("result") or result["errors"]


def test_a_used_up_limit_says_when_it_resets(demo: Demo) -> None:
    run = demo.run("@limit 3600")
    (frame,) = run.of("rate_limit_event")
    assert frame["rate_limit_info"]["status"] == "rejected"
    assert frame["rate_limit_info"]["resetsAt"] > time.time() + 3000
    assert (run.code, run.results[0]["api_error"]) == (1, "usage_limit_reached")


def test_retries_are_announced(demo: Demo) -> None:
    frames = demo.run("@retry overloaded 2\n@text at last").of("system", "api_retry")
    assert [(f["attempt"], f["error_status"], f["error"]) for f in frames] == [
        (1, 529, "overloaded"),
        (2, 529, "overloaded"),
    ]


def test_a_bad_script_is_a_failed_turn_that_names_the_line(demo: Demo) -> None:
    run = demo.run("fine\n@strem 3")
    assert run.code == 1
    assert "line 2: unknown directive @strem; did you mean @stream?" in run.text
    assert "line 2" in run.stderr
    assert run.results[0]["is_error"]


@pytest.mark.parametrize(("script", "code"), [("@exit 0", 0), ("@exit 42", 42), ("@die KILL", -9), ("@die SEGV", -11)])
def test_it_can_end_without_a_result(demo: Demo, script: str, code: int) -> None:
    run = demo.run(f"@text partial\n{script}")
    assert (run.code, run.results) == (code, [])


def test_a_crash_cuts_its_last_line(demo: Demo) -> None:
    run = demo.run("@crash")
    assert run.code == 1
    assert not run.stdout.endswith(b"\n")
    assert "TypeError" in run.stderr


@pytest.mark.parametrize("size", ["", " 1", " 100"])
def test_the_bytes_of_a_file_reach_stdout_as_they_are(demo: Demo, size: str) -> None:
    data = bytes(range(256)) * 2
    (demo.cwd / "bytes").write_bytes(data)
    assert data in demo.run(f"@bytes bytes{size}\n@text end").stdout


def test_bad_bytes_reach_stdout(demo: Demo) -> None:
    run = demo.run("@bad\n@noise\n@raw {not json\n@unknown\n@misshapen\n@drip 0 5\n@text end")
    for needle in (b"\xff\xfe", b"\\ud83d", b"\\u0000", b"[debug]", b"{not json", b"from_the_future", b"#~jun\n"):
        assert needle in run.stdout
    assert b'"result":"end"' in run.stdout


def test_pings_come_as_often_as_asked(demo: Demo) -> None:
    run = demo.run("@pings 0 3")
    assert [f["event"]["type"] for f in run.of("stream_event")][:3] == ["ping"] * 3


def test_stderr_gets_what_is_asked(demo: Demo) -> None:
    run = demo.run("@stderr a word\n@stderr-flood 100000")
    assert run.stderr.startswith("a word\n")
    assert len(run.stderr) == len("a word\n") + 100000


def test_it_can_linger_after_its_result(demo: Demo) -> None:
    live = demo.start("@linger forever")
    live.wait_for(b'"type":"result"')
    assert live.process.poll() is None
    assert live.send(signal.SIGTERM).code == 143


@pytest.mark.parametrize("kind", ORPHAN_KINDS)
def test_an_orphan_outlives_its_cli(demo: Demo, kind: str) -> None:
    live = demo.start(f"@orphan {kind} 20\n@stall")
    live.wait_for(b": pid ")
    pid = int(live.seen.rpartition(b": pid ")[2].partition(b'"')[0])
    live.process.kill()
    live.process.wait()
    # The first process of a re-forking kind has gone already; the later ones are found by their environment.
    assert demo.is_alive(pid) or demo.eventually(lambda: bool(demo.survivors()))
    demo.leftovers.append(pid)


def test_an_orphan_can_hold_stdout_after_the_end(demo: Demo) -> None:
    live = demo.start("@orphan holds-stdout 20")
    live.wait_for(b'"type":"result"')
    assert live.process.wait(timeout=20) == 0
    assert live.process.stdout is not None
    os.set_blocking(live.process.stdout.fileno(), False)
    assert live.process.stdout.read() is None  # it is not at its end
    assert demo.eventually(lambda: bool(demo.survivors()))  # none of them has an environment while it is executed
