"""When the memory of the trees is looked at, and when the last look is good enough."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio

from clisup.daemon.ops import memory
from clisup.daemon.ops.memory import MEMORY_LOOK_S, NEW_RUN_LOOK_S, MemoryLook

KEEPERS = {"a": 11, "b": 12}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Who was looked at, look by look; the time stands still but for `passes`."""
    made: list[list[int]] = []

    def look(roots: Iterable[int]) -> dict[int, int]:
        made.append(sorted(roots))
        return {root: root * 1000 + len(made) for root in roots}

    monkeypatch.setattr(memory, "tree_memory", look)
    monkeypatch.setattr(memory.clock, "monotonic", lambda: now[0])
    now[0] = 100.0
    return made


now = [100.0]


async def test_one_look_serves_all_who_ask_at_once_and_for_some_seconds(looks: list[list[int]]) -> None:
    memory_look = MemoryLook()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(memory_look.refresh, lambda: KEEPERS)
    now[0] += MEMORY_LOOK_S * 0.9
    await memory_look.refresh(lambda: KEEPERS)
    assert looks == [[11, 12]] and memory_look.of(11) == 11_001
    now[0] += MEMORY_LOOK_S
    await memory_look.refresh(lambda: KEEPERS)
    assert len(looks) == 2 and memory_look.of(12) == 12_002


async def test_a_run_that_is_new_is_looked_for_sooner(looks: list[list[int]]) -> None:
    memory_look = MemoryLook()
    await memory_look.refresh(lambda: {"a": 11})
    await memory_look.refresh(lambda: KEEPERS)
    assert looks == [[11]] and memory_look.of(12) is None
    now[0] += NEW_RUN_LOOK_S
    await memory_look.refresh(lambda: KEEPERS)
    assert looks == [[11], [11, 12]] and memory_look.of(12) == 12_002


async def test_where_nothing_runs_nothing_is_read(looks: list[list[int]]) -> None:
    memory_look = MemoryLook()
    await memory_look.refresh(dict)
    assert looks == [] and memory_look.of(None) is None
