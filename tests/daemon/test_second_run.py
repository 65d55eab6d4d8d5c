"""A turn that needs another run: what that one's CLI starts descends from that one's keeper."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
import trio

from clisup.backends.base import LaunchRequest
from clisup.config.model import parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.turn import TurnRunner
from clisup.daemon.sessions.turn_recorder import TurnRecorder
from clisup.model.events import Actor
from clisup.model.sessions.ledger import TurnRecord
from clisup.wire.params import PromptParams, SessionNewParams

LIMIT_S = 20.0
ME = Actor(uid=0, pid=1)
REFUSES_ONCE = """#!/bin/sh
if [ "$1" != --version ] && [ ! -e {once} ]; then
    touch {once}
    until [ -e {go} ]; do sleep 0.01; done
    echo "Error: Session ID x is already in use." >&2
    exit 1
fi
exec {python} -m clisup.demo "$@"
"""


@pytest.mark.fault(42)
async def test_the_keeper_of_a_second_run_is_known_as_soon_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("home", "state", "work"):
        (tmp_path / name).mkdir()
    cli = tmp_path / "cli"
    cli.write_text(REFUSES_ONCE.format(once=tmp_path / "once", go=tmp_path / "go", python=sys.executable))
    cli.chmod(0o755)
    config = parse_config({"backends": {"demo": {"command": [str(cli)]}}})
    env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    told: list[int | None] = []
    real: list[int] = []
    take_hold = TurnRunner._run

    async def looked(runner: TurnRunner, turn: TurnRecord, request: LaunchRequest, sink: TurnRecorder) -> Run:
        context = runner._context
        told.append(context.keeper_pid())
        real.append((context.dir.run(turn.run).start_record() or {})["keeper_pid"])
        return await take_hold(runner, turn, request, sink)

    monkeypatch.setattr(TurnRunner, "_run", looked)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            manager = Manager(config, Backends(config, env), str(tmp_path / "state"), nursery)
            new = SessionNewParams(backend="demo", cwd=str(tmp_path / "work"))
            session = await manager.open(new, ME)
            said = await session.prompts.accept(PromptParams(session_id=session.id, prompt="hello"), ME)
            while session.run is None or session.run.keeper_pid is None:
                await trio.sleep(0.01)
            (tmp_path / "go").touch()
            assert said.turn_id is not None
            await session.finished(said.turn_id)
            while any(map(psutil.pid_exists, real)):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert told == real and len(set(real)) == 2
