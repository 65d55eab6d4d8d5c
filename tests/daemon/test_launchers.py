"""CLIs that are not what was started: a launcher in front of the worker, and a session in place of the one asked for."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

from tests.fakecli import COMMAND

SWALLOWS = """#!/bin/sh
trap '' INT TERM HUP
exec 3<&0
{python} -I -S {demo} "$@" <&3 &
wait
"""
ORPHANS = """#!/bin/sh
[ "$1" = --version ] && exec {python} -I -S {demo} "$@"
cat > "$HOME/prompt"
setsid {python} -I -S {demo} "$@" < "$HOME/prompt" &
while [ ! -e "$HOME/up" ]; do sleep 0.01; done
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Callable[[str], list[str]]:
    def make(script: str) -> list[str]:
        path = tmp_path / "launcher"
        path.write_text(script.format(python=sys.executable, demo=COMMAND[-1]))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path)]

    return make


@pytest.mark.fault(72)
def test_a_launcher_that_swallows_signals_dies_with_its_worker(
    serve: Callable[..., Harness], launcher: Callable[[str], list[str]]
) -> None:
    daemon = serve(demo={"command": launcher(SWALLOWS)}, timeouts={"int_grace": 0.2, "term_grace": 0.2})
    session = daemon.new()
    session.prompt("@say-pid\n@bash sleep 300")
    session.await_event("tool_use")
    worker = int(session.events("content_delta", kind="text")[-1]["text"].removeprefix("pid "))
    assert worker != session.cli() and worker in session.processes()
    assert session.call("interrupt")["outcome"] == "interrupted"
    assert not os.path.exists(f"/proc/{worker}") and not session.processes()


@pytest.mark.fault(72)
def test_a_launcher_that_leaves_early_leaves_no_worker_behind(
    serve: Callable[..., Harness], launcher: Callable[[str], list[str]]
) -> None:
    daemon = serve(demo={"command": launcher(ORPHANS)})
    session = daemon.new()
    session.prompt(f"some text\n@touch {daemon.root}/home/up\n@stall")
    end = session.end_of("t1")
    assert end["outcome"] == "failed"  # its first process has gone without a last word: never a success
    exited = session.events("process_exited")[0]
    assert any(process["comm"].startswith("python") for process in exited["survivors"])
    until(lambda: not session.processes())


@pytest.mark.fault(74)
def test_a_session_that_the_cli_replaces_by_a_new_one_is_noticed_by_its_id(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"args": ["--fork-session"]})  # a resume answers from a copy under a new id
    session = daemon.new()
    session.ask("first")
    end = session.ask("second")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "session_not_found")
    assert session.id in end["error"]["message"]
    assert session.events("process_exited")[-1]["ended_by"] in ("wrong_session", "cli")  # whichever comes first
