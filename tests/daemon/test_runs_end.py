"""A run that is over leaves nothing in the daemon's memory."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest
import trio

from clisup.config.model import parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.sessions.registry import Manager
from clisup.model.events import Actor
from clisup.wire.params import PromptParams, SessionNewParams

OURS = (
    "clisup.backends.",
    "clisup.daemon.runs.run",
    "clisup.daemon.sessions.turn",
    "clisup.daemon.runs.keeper_link",
    "clisup.daemon.runs.watchdog",
)
TURNS = 3


def kept() -> Counter[str]:
    """Count the objects of runs by their type."""
    gc.collect()
    found = (type(each) for each in gc.get_objects())
    return Counter(each.__qualname__ for each in found if each.__module__.startswith(OURS))


@pytest.mark.parametrize("live", [False, True])
async def test_a_run_that_is_over_is_gone_with_all_that_it_had(
    tmp_path: Path, nursery: trio.Nursery, live: bool
) -> None:
    (tmp_path / "state").mkdir()
    config = parse_config({"backends": {"demo": {"mode": "live" if live else "one-shot"}}})
    manager = Manager(
        config, Backends(config, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}), str(tmp_path / "state"), nursery
    )
    session = await manager.open(SessionNewParams.model_validate({"backend": "demo", "cwd": str(tmp_path)}))
    before = kept()
    for number in range(TURNS):
        asked = PromptParams.model_validate({"session_id": session.id, "prompt": f"say it {number}"})
        turn = (await session.prompts.accept(asked, Actor(uid=0, pid=1))).turn_id
        with trio.fail_after(30):
            await session.finished(turn)
    assert session.ledger.completed == TURNS
    await session.close(Actor(uid=0, pid=1))
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert kept() - before == Counter()
