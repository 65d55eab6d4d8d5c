"""A home on a slow disk: every sync of the daemon takes long, and no healthy turn is ended or loses an event for that."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from harness import Harness

SYNCS, DELAY = "fsync,fdatasync", "delay_enter=300000"  # microseconds


@pytest.mark.fault(99)
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace, which delays system calls")
def test_on_a_slow_disk_turns_complete_and_none_is_ended_as_silent(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False, timeouts={"startup": 10, "model_idle": 1.5, "tool_idle": 3})
    plain = daemon.argv()
    slow = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={SYNCS}", "-e", f"inject={SYNCS}:{DELAY}"]
    daemon.cold, daemon.argv = True, lambda: [*slow, *plain]  # type: ignore[method-assign]
    daemon.start()
    sessions = [daemon.new() for _ in range(2)]
    turns = [session.prompt("@stream 10 20 0.2\n@bash sleep 1; echo done") for session in sessions]
    for session, turn in zip(sessions, turns, strict=True):
        assert session.end_of(turn)["outcome"] == "completed"
        assert not session.events("watchdog", action="fired")
        assert len(session.events("tool_result")) == 1
    assert sessions[0].ask("again")["outcome"] == "completed"
