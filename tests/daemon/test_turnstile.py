"""The turnstile and the holdings under trio: order, patience, cancels, and who has to go. No process, no socket."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from clisup.daemon.clients.buffer_budget import Holding, Holdings
from clisup.daemon.clients.fair_share import Turn, Turnstile
from clisup.policy.fair_queue import MAX_QUOTA, Share

SHARE = Share(burst=4, rate=1)


def greedy(turnstile: Turnstile) -> Turn:
    """A second connection of one process has nothing left of its first one's share."""
    turnstile.turn(1)
    return turnstile.turn(1)


async def flood(turn: Turn, name: str, log: list[str]) -> None:
    while True:
        await turn.request()
        log.append(name)


@pytest.mark.fault(47)
async def test_floods_are_served_in_turn_and_a_good_client_at_once(nursery: trio.Nursery) -> None:
    turnstile, log = Turnstile(SHARE, patience_s=60), list[str]()
    good = turnstile.turn(2)
    nursery.start_soon(turnstile.run)
    for number in range(30):
        nursery.start_soon(flood, greedy(turnstile), str(number), log)
    while len(log) < 300:
        await trio.lowlevel.checkpoint()
    before = len(log)
    assert await good.request()
    assert len(log) == before, "it did not wait"
    while len(log) < 2000:
        await trio.lowlevel.checkpoint()
    later = Counter(log[before:])  # in the first round, before anybody stood in line, one may have taken all
    assert max(later.values()) < 2 * min(later.values())
    assert len(later) == 30


async def test_a_lone_flood_is_let_in_by_whole_rounds(nursery: trio.Nursery) -> None:
    turnstile, log = Turnstile(SHARE, patience_s=60), list[str]()
    nursery.start_soon(turnstile.run)
    nursery.start_soon(flood, greedy(turnstile), "x", log)
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    before, seen = len(log), 0
    for _ in range(50):
        await trio.lowlevel.checkpoint()
        seen += 1
    assert len(log) - before > 2 * seen, "more than one a round"
    assert len(log) - before < 2 * MAX_QUOTA * seen


async def test_a_request_whose_turn_does_not_come_is_told_and_gives_its_place_up(autojump_clock: MockClock) -> None:
    turnstile = Turnstile(SHARE, patience_s=10)  # nobody runs it
    turn = greedy(turnstile)
    while await turn.request():
        pass
    assert trio.current_time() == pytest.approx(10)
    assert not await turn.request()
    assert trio.current_time() == pytest.approx(20)


async def test_a_cancelled_wait_leaves_the_line(nursery: trio.Nursery) -> None:
    turnstile, log = Turnstile(SHARE, patience_s=60), list[str]()
    turn = greedy(turnstile)
    async with trio.open_nursery() as waiting:
        waiting.start_soon(flood, turn, "x", log)
        await wait_all_tasks_blocked()
        waiting.cancel_scope.cancel()
    nursery.start_soon(turnstile.run)
    with trio.fail_after(5):
        assert await turn.request()


async def test_all_tasks_of_a_connection_stand_in_line_as_one(nursery: trio.Nursery) -> None:
    turnstile, log = Turnstile(SHARE, patience_s=60), list[str]()
    nursery.start_soon(turnstile.run)
    many, one = greedy(turnstile), greedy(turnstile)
    for _ in range(20):
        nursery.start_soon(flood, many, "many", log)
    nursery.start_soon(flood, one, "one", log)
    while len(log) < 2000:
        await trio.lowlevel.checkpoint()
    assert log.count("one") > 0.45 * len(log), "twenty tasks get no more than one"
    assert log.count("many") > 20


# -- what is held for clients -----------------------------------------------------------------------------------------


def holder(holdings: Holdings, gone: list[str], name: str) -> Holding:
    holding = holdings.of_a_connection()
    holding.on_forfeit = lambda: gone.append(name)
    return holding


async def test_over_the_limit_goes_who_held_the_most_for_the_longest(autojump_clock: MockClock) -> None:
    holdings, gone = Holdings(1000), list[str]()
    stuck, small, busy = (holder(holdings, gone, name) for name in ("stuck", "small", "busy"))
    stuck.change(400)
    small.change(1)
    await trio.sleep(10)
    for _ in range(100):  # what it holds at times is more than what the other holds always
        busy.change(500)
        await trio.sleep(0.001)
        busy.change(-500)
    assert not gone
    busy.change(700)
    assert gone == ["stuck"]
    assert holdings.total == 701
    stuck.change(-400)
    assert holdings.total == 701, "what it holds counts no more"


async def test_as_many_go_as_it_takes_and_a_connection_that_ends_gives_all_back(autojump_clock: MockClock) -> None:
    holdings, gone = Holdings(1000), list[str]()
    each = [holder(holdings, gone, str(number)) for number in range(10)]
    for holding in each:
        holding.change(100)
    await trio.sleep(1)
    late = holder(holdings, gone, "late")
    late.change(250)
    assert len(gone) == 3 and "late" not in gone
    for holding in [*each, late]:
        holding.close()
        holding.close()
    assert holdings.total == 0


async def test_who_alone_wants_more_than_the_limit_goes(autojump_clock: MockClock) -> None:
    holdings, gone = Holdings(1000), list[str]()
    holder(holdings, gone, "huge").change(1001)
    assert (gone, holdings.total) == (["huge"], 0)
