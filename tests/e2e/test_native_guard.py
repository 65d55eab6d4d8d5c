"""A vanilla claude in the same session: seen as far as it can be."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.lab import QUIET, ClaudeLab, claude_binary, poll

pytestmark = pytest.mark.e2e


@contextmanager
def vanilla(here: ClaudeLab, *words: str, terminal: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """claude as somebody starts it by hand: waiting for input, on a pipe or in a terminal."""
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), **here.variables, **QUIET, "TERM": "xterm"}
    outer, inner = pty.openpty()
    stdin = inner if terminal else subprocess.PIPE
    out = inner if terminal else subprocess.DEVNULL
    process = subprocess.Popen(
        [str(claude_binary()), *words],
        env=env,
        cwd=here.cwd,
        stdin=stdin,
        stdout=out,
        stderr=out,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        os.close(outer)
        os.close(inner)


def note(here: ClaudeLab, process: subprocess.Popen[bytes]) -> Path:
    return here.home / ".claude" / "sessions" / f"{process.pid}.json"


def names(here: ClaudeLab, process: subprocess.Popen[bytes], session: str) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads(note(here, process).read_bytes())["sessionId"] == session)
    return False


STREAM: Sequence[str] = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


@pytest.mark.parametrize("how", ["stream", "bare", "terminal"])
def test_a_turn_is_refused_while_a_vanilla_claude_has_the_session_open(lab: Callable[..., ClaudeLab], how: str) -> None:
    here = lab("memory")
    session = here.turn("My name is Ada.")["session_id"]
    _skip_the_questions(here)
    flags = {"stream": STREAM, "bare": (*STREAM, "--bare"), "terminal": ()}[how]
    with vanilla(here, *flags, "--resume", session, terminal=how == "terminal") as process:
        poll(lambda: names(here, process, session), "its file")
        refused = here.turn("Second prompt.", session=session)
        assert (refused["outcome"], refused["error"]["kind"]) == ("failed", "session_busy")
        assert str(process.pid) in refused["error"]["message"] and refused["error"]["retryable"]
    assert note(here, process).exists(), "SIGKILL leaves it behind"
    assert "Ada" in here.turn("What did I say?", session=session)["text"]


def _skip_the_questions(here: ClaudeLab) -> None:
    path = here.home / ".claude.json"
    known = json.loads(path.read_text())
    key = here.variables["ANTHROPIC_API_KEY"][-20:]
    trusted = {str(here.cwd): {"hasTrustDialogAccepted": True}}
    answers = {"hasCompletedOnboarding": True, "projects": trusted, "customApiKeyResponses": {"approved": [key]}}
    path.write_text(json.dumps({**known, **answers}))


def test_it_is_seen_by_its_command_line_before_it_has_a_file(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    session = here.turn("My name is Ada.")["session_id"]
    with vanilla(here, *STREAM, f"--resume={session}") as process:
        poll(lambda: b"claude" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "its exec")
        process.send_signal(signal.SIGSTOP)
        assert here.turn("Second prompt.", session=session)["error"]["kind"] == "session_busy"


def test_a_vanilla_claude_that_has_gone_leaves_its_writing_to_be_told(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    here.asked_by_others = True
    session = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=session)
    assert not here.events(session, "notice")
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), **here.variables, **QUIET}
    argv = [str(claude_binary()), "-p", "--resume", session, "By hand."]
    subprocess.run(argv, env=env, cwd=here.cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    here.turn("Third prompt.", session=session)
    (told,) = here.events(session, "notice")
    assert told["code"] == "foreign_writes" and "longer" in told["message"]
    assert "By hand." in str(here.api.main_requests[-1].body["messages"])
    with here.client() as client:
        forked = client.call("session/fork", session_id=session, at_turn="t2")["session_id"]
    here.turn("In the fork.", session=forked)
    assert "By hand." not in str(here.api.main_requests[-1].body["messages"])


def test_the_sessions_own_live_process_is_no_stranger(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    session = here.turn("My name is Ada.", mode="live")["session_id"]
    (started,) = here.events(session, "process_started")
    own = here.home / ".claude" / "sessions" / f"{started['pid']}.json"
    assert json.loads(own.read_bytes())["sessionId"] == session
    assert "Ada" in here.turn("What did I say?", session=session)["text"]
    with vanilla(here, *STREAM, "--resume", session) as process:
        poll(lambda: names(here, process, session), "its file")
        assert here.turn("Third prompt.", session=session)["error"]["kind"] == "session_busy"
    assert here.turn("Fourth prompt.", session=session)["outcome"] == "completed"
    assert len(here.events(session, "process_started")) == 1
