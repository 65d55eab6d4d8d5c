"""The collections of garbage in the daemon."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from clisup.daemon.garbage_collector import collect_garbage


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Cycle:
    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


def test_a_daemon_whose_start_made_no_collections_makes_them_again() -> None:
    async def main() -> None:
        gc.disable()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_garbage)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(100_000):  # Python's own threshold is 700
                Cycle()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert Cycle.alive < 50_000
