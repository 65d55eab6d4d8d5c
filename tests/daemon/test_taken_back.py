"""A queued prompt that a client takes back is never run, whatever happens in the same moment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness

from clisup.config.model import parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.session import Session
from clisup.errors import ClisupError
from clisup.model.events import Actor
from clisup.store.session_dir import SessionDir
from clisup.wire.params import PromptParams, SessionForkParams, SessionNewParams

ME = Actor(uid=0, pid=1)


def stored(session: Session) -> list[dict[str, Any]]:
    reader = session.recorder.reader(0)
    block = reader.read()
    reader.close()
    return [] if block is None else [json.loads(stored.event) for stored in block.events()]


def test_in_the_step_in_which_it_gets_its_slot(tmp_path: Path) -> None:
    for name in ("home", "state", "work"):
        (tmp_path / name).mkdir()
    config = parse_config({"daemon": {"max_running": 1}, "backends": {"demo": {}}})
    env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    new = SessionNewParams(backend="demo", cwd=str(tmp_path / "work"))

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            manager = Manager(config, Backends(config, env), str(tmp_path / "state"), nursery)
            runs, waits = [await manager.open(new, ME) for _ in range(2)]
            await runs.prompts.accept(PromptParams(session_id=runs.id, prompt=f"@wait-file {tmp_path}/go"), ME)
            while runs.ledger.current is None:
                await runs.recorder.news.wait()
            taken = await waits.prompts.accept(PromptParams(session_id=waits.id, prompt="delete everything"), ME)
            slots = manager.services.slots
            while not slots.waiting:
                await trio.lowlevel.checkpoint()
            slots.resize(2)  # as where another turn ends
            assert taken.turn_id is not None
            await waits.interrupt(taken.turn_id, "graceful", ME)
            again = await waits.prompts.accept(PromptParams(session_id=waits.id, prompt="hello"), ME)
            assert again.turn_id is not None
            await waits.finished(again.turn_id)
            events = [event for event in stored(waits) if event["turn_id"] == taken.turn_id]
            assert [event["type"] for event in events] == ["prompt_accepted", "turn_completed"]
            (tmp_path / "go").touch()
            await runs.finished("t1")
            await keepers_gone(tmp_path)
            nursery.cancel_scope.cancel()

    with_limit(both)


async def keepers_gone(tmp_path: Path) -> None:
    """All that were started have ended, and were reaped."""
    words = [json.loads(path.read_text()) for path in (tmp_path / "state").rglob("start.json")]
    there = {str(word["keeper_pid"]) for word in words}
    while not there.isdisjoint(os.listdir("/proc")):
        await trio.sleep(0.02)


def with_limit(work: Callable[[], Any]) -> None:
    async def limited() -> None:
        with trio.fail_after(60):
            await work()

    trio.run(limited)


def test_a_prompt_in_whose_place_something_else_lies_ends_its_turn_alone(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    daemon.faults_expected = True
    daemon.start()
    session = daemon.new()
    session.prompt(f"@wait-file {daemon.root}/go")
    session.cli()
    turn = session.prompt("second")
    text = session.dir / "prompts" / f"{turn}.json"
    text.unlink()
    text.mkdir()
    (daemon.root / "go").touch()
    session.end_of("t1")
    assert session.end_of(turn)["error"]["kind"] == "storage_failed"
    assert not session.events("turn_started", turn_id=turn)
    assert session.ask("third")["outcome"] == "completed"


def test_one_id_for_a_new_session_and_a_fork_is_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of the two waits until the first has its files, and then finds a session of other params."""

    for name in ("home", "state", "work"):
        (tmp_path / name).mkdir()
    config = parse_config({"backends": {"demo": {}}})
    env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    wanted = "11111111-1111-4111-8111-111111111111"
    outcomes: list[str] = []

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            manager = Manager(config, Backends(config, env), str(tmp_path / "state"), nursery)
            source = await manager.open(SessionNewParams(backend="demo", cwd=str(tmp_path / "work")), ME)
            done = await source.prompts.accept(PromptParams(session_id=source.id, prompt="hello"), ME)
            await source.finished(str(done.turn_id))
            create, halfway, go = SessionDir.create, trio.Event(), trio.Event()

            def slow(self: SessionDir, *of: Any) -> None:
                trio.from_thread.run_sync(halfway.set)
                trio.from_thread.run(go.wait)
                create(self, *of)

            monkeypatch.setattr(SessionDir, "create", slow)

            async def told(work: Callable[[], Any]) -> None:
                try:
                    await work()
                except ClisupError as error:
                    outcomes.append(error.kind)
                else:
                    outcomes.append("ok")

            new = SessionNewParams(backend="demo", cwd=str(tmp_path / "work"), session_id=wanted)
            fork = SessionForkParams(session_id=source.id, session_id_new=wanted)
            async with trio.open_nursery() as askers:
                askers.start_soon(told, lambda: manager.open(new, ME))
                await halfway.wait()
                askers.start_soon(told, lambda: manager.fork(fork, ME))
                await trio.testing.wait_all_tasks_blocked()
                go.set()
            assert sum(session.id == wanted for session in manager) == 1
            await keepers_gone(tmp_path)
            nursery.cancel_scope.cancel()

    with_limit(both)
    assert outcomes == ["ok", "session_exists"]
