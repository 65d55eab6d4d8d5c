"""A task that looks, waits and looks again misses nothing."""

from __future__ import annotations

import trio

from clisup.daemon.sessions.context import Notification


async def test_what_comes_between_a_look_and_its_wait_ends_the_wait() -> None:
    wake = Notification()
    wake.clear()
    wake.notify()
    with trio.fail_after(10):
        await wake.wait()
        await wake.wait()  # of the same look


async def test_what_comes_before_a_look_is_not_waited_for_again(autojump_clock: trio.testing.MockClock) -> None:
    wake = Notification()
    wake.notify()  # nobody looks yet
    wake.clear()
    with trio.move_on_after(10) as waited:
        await wake.wait()
    assert waited.cancelled_caught
    wake.notify()
    wake.clear()
    with trio.move_on_after(10) as waited:
        await wake.wait()
    assert waited.cancelled_caught


async def test_a_wait_ends_when_something_comes() -> None:
    wake = Notification()
    wake.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wake.wait)
        await trio.testing.wait_all_tasks_blocked()
        wake.notify()
