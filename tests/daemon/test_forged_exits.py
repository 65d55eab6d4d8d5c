"""A tool writes the exit record of its own run: the run goes on, is not played twice, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe
from test_hidden_processes import hide, lives

FORGED: dict[str, Any] = {
    "reason": "exit", "exit_code": 0, "signal": None, "survivors": [], "left": [],
    "kept": [{"pid": 1, "comm": "init"}], "duration_s": 1.0,
}  # fmt: skip


def forge(session: SessionProbe, **fields: Any) -> None:
    (session.dir / "runs" / "1" / "exit.json").write_text(json.dumps({**FORGED, **fields}))


@pytest.mark.parametrize("restart", [False, True])
def test_processes_that_a_forged_record_calls_kept_are_ended_after_the_keepers_kill(
    serve: Callable[..., Harness], tmp_path: Path, restart: bool
) -> None:
    daemon = serve()
    session = daemon.new()
    if not restart:
        hidden = hide(session, tmp_path, "hidden")
    else:  # what hides goes to init when the daemon is gone, so this one keeps its marker
        session.prompt(
            f"@bash setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' </dev/null >/dev/null 2>&1 &\n@stall"
        )
        hidden = [int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))]
    keeper = session.get()["keeper_pid"]
    forge(session)
    if restart:
        daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    if restart:
        daemon.start()
    session.end_of("t1")
    until(lambda: not any(map(lives, hidden)), "a process is left behind")
    assert session.ask("next")["outcome"] == "completed"


def test_a_run_whose_keeper_lives_goes_on_beside_a_forged_record(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("a word\n@wait-file go\nthe end")
    session.await_event("content_delta")
    daemon.kill()
    forge(session, kept=[])
    # The next daemon does not reach the keeper, and looks at the files.
    (session.dir / "runs" / "1" / "ctl.sock").unlink()
    daemon.start()
    until(lambda: session.get()["state"] == "running")
    (daemon.cwd / "go").touch()
    assert session.end_of("t1")["text"].endswith("the end")
    assert session.ask("next")["outcome"] == "completed"


def test_a_prompt_is_not_played_again_because_a_forged_record_says_that_its_run_never_started(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@bash echo ran >> {tmp_path}/ran\n@wait-file go\nthe end")
    until((tmp_path / "ran").exists)
    daemon.kill()
    forge(session, reason="never_started")
    (session.dir / "runs" / "1" / "start.json").unlink()
    daemon.start()
    (daemon.cwd / "go").touch()
    session.end_of("t1")
    assert (tmp_path / "ran").read_text() == "ran\n"
