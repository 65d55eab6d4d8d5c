"""The collections of garbage in the daemon."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from clisup.daemon import garbage_collector
from clisup.daemon.garbage_collector import collect_garbage


class Cycle:
    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.collect()
    assert Cycle.alive == 0


def test_a_daemon_whose_start_made_no_collections_makes_them_again() -> None:
    async def main() -> None:
        gc.disable()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_garbage)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(100_000):
                Cycle()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert Cycle.alive < 10_000


@pytest.mark.parametrize(("growth", "part"), [(10_000, 0.0), (10**9, 0.0), (0, 1.0)])
def test_old_garbage_waits_for_its_share_of_the_time_unless_the_memory_grows(
    growth: int, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collector, "GROWTH", growth)
    monkeypatch.setattr(garbage_collector, "GROWTH_PART", part)  # 1.0: the daemon would have to double
    monkeypatch.setattr(garbage_collector, "AFTER", 10**9)  # the share is never due

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_garbage)
            await trio.testing.wait_all_tasks_blocked()
            held = [Cycle() for _ in range(20_000)]
            gc.collect(0)  # Python's own collections of young objects do not see them any more
            held.clear()
            await trio.sleep(2.5)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert Cycle.alive == (0 if growth == 10_000 else 20_000)
