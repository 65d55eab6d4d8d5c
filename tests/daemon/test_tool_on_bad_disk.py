"""A disk that cannot be read says nothing of keepers, and gives the tools of their CLIs no rights for that."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until
from test_last_descriptor import SPEAKER

from clisup.host.failpoints import VARIABLE


@pytest.mark.fault(42)
def test_a_tool_is_still_a_tool_while_a_bad_disk_keeps_a_daemon_from_taking_up_its_turn(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    go, out, script = tmp_path / "go", tmp_path / "out", tmp_path / "speak.py"
    script.write_text(SPEAKER)
    session = daemon.new(session_id=str(uuid.uuid4()))
    turn = session.prompt(f"@bash {sys.executable} -I -S {script} {go} {out} {daemon.socket} 2>&1")
    session.await_event("tool_use")
    daemon.kill()
    daemon.env[VARIABLE] = "file.read=EIO@7-31"
    daemon.start()
    go.touch()
    until(out.exists)
    assert "permission_denied" in out.read_text()
    assert session.end_of(turn)["outcome"] == "completed"
