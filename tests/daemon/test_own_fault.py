"""A fault of the daemon's own ends a turn, and leaves nothing of its process behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from clisup.config.model import parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions import turn_ends
from clisup.daemon.sessions.registry import Manager
from clisup.host.process.cgroups import CgroupHome
from clisup.model.events import Actor
from clisup.store.session_dir import RunDir
from clisup.wire.params import PromptParams, SessionNewParams

LIMIT_S = 20.0
ME = Actor(uid=0, pid=1)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not CgroupHome.find().available, reason="no cgroup v2 can be made here")
@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_with_a_cgroup_not_even_a_cleared_environment_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    for name in ("home", "state", "work"):
        (tmp_path / name).mkdir()
    config = parse_config({"backends": {"demo": {"mode": mode}}})
    env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    new = SessionNewParams(backend="demo", cwd=str(tmp_path / "work"))
    stray, take_bytes = tmp_path / "stray", Run.take_bytes

    async def faulty(run: Run, data: bytes, until: float) -> None:
        if stray.exists():
            raise RuntimeError("a fault of ours")
        await take_bytes(run, data, until)

    monkeypatch.setattr(Run, "take_bytes", faulty)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            manager = Manager(config, Backends(config, env), str(tmp_path / "state"), nursery)
            session = await manager.open(new, ME)
            hidden = f"env -i setsid sh -c 'echo $$ > {stray}.new; mv {stray}.new {stray}; exec sleep 300'"
            prompt = f"@bash {hidden} & until [ -e {stray} ]; do sleep 0.01; done; echo up; sleep 300"
            said = await session.prompts.accept(PromptParams(session_id=session.id, prompt=f"{prompt}\n@stall"), ME)
            assert said.turn_id is not None
            while not stray.exists():
                await trio.sleep(0.01)
            assert session.run is not None
            session.run.check_spools()
            await session.finished(said.turn_id)
            nursery.cancel_scope.cancel()
    lives = _lives(int(stray.read_text()))
    if lives:
        os.kill(int(stray.read_text()), signal.SIGKILL)
    assert not lives


async def test_a_turn_that_cannot_even_be_given_up_is_ended_once_that_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("home", "state", "work"):
        (tmp_path / name).mkdir()
    env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    failures = iter([MemoryError(), MemoryError()])
    end_run = turn_ends.end_run

    async def faulty(run: Run, data: bytes, until: float) -> None:
        raise RuntimeError("a fault of ours")

    async def without_memory(run: RunDir) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure
        await end_run(run)

    monkeypatch.setattr(Run, "take_bytes", faulty)
    monkeypatch.setattr(turn_ends, "end_run", without_memory)
    monkeypatch.setattr(turn_ends, "GIVE_UP_PAUSE_S", 0.01)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            manager = Manager(parse_config({}), Backends(parse_config({}), env), str(tmp_path / "state"), nursery)
            session = await manager.open(SessionNewParams(backend="demo", cwd=str(tmp_path / "work")), ME)
            said = await session.prompts.accept(PromptParams(session_id=session.id, prompt="hello"), ME)
            assert said.turn_id is not None
            done = await session.finished(said.turn_id)
            nursery.cancel_scope.cancel()
    assert next(failures, None) is None and session.ledger.outcomes == {"failed": 1} and done is not None
