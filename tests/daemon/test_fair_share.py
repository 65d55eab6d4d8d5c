"""Fair share and buffer budget under trio: order, patience, cancels and evictions. No process, no socket."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from clisup.daemon.clients.buffer_budget import BufferBudget, HeldBytes
from clisup.daemon.clients.fair_share import ClientShare, FairShare
from clisup.policy.fair_queue import MAX_QUOTA, Share

SHARE = Share(burst=4, rate=1)


def greedy(shares: FairShare) -> ClientShare:
    """A second connection of one process has nothing left of its first one's share."""
    shares.connect(1)
    return shares.connect(1)


async def flood(turn: ClientShare, name: str, log: list[str]) -> None:
    while True:
        await turn.wait_for_request()
        log.append(name)


@pytest.mark.fault(47)
async def test_floods_are_served_in_turn_and_a_good_client_at_once(nursery: trio.Nursery) -> None:
    shares, log = FairShare(SHARE, patience_s=60), list[str]()
    good = shares.connect(2)
    nursery.start_soon(shares.run)
    for number in range(30):
        nursery.start_soon(flood, greedy(shares), str(number), log)
    while len(log) < 300:
        await trio.lowlevel.checkpoint()
    before = len(log)
    assert await good.wait_for_request()
    assert len(log) == before, "it did not wait"
    while len(log) < 2000:
        await trio.lowlevel.checkpoint()
    later = Counter(log[before:])  # in the first round, before anybody stood in line, one may have taken all
    assert len(later) == 30
    even = later.total() / 30
    assert min(later.values()) > even / 2, "the room of a round that nobody waits for goes to anyone, the rest in turn"


async def test_a_lone_flood_is_let_in_by_whole_rounds(nursery: trio.Nursery) -> None:
    shares, log = FairShare(SHARE, patience_s=60), list[str]()
    nursery.start_soon(shares.run)
    nursery.start_soon(flood, greedy(shares), "x", log)
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    before, seen = len(log), 0
    for _ in range(50):
        await trio.lowlevel.checkpoint()
        seen += 1
    assert len(log) - before > 2 * seen, "more than one a round"
    assert len(log) - before < 2 * MAX_QUOTA * seen


async def test_a_request_whose_turn_does_not_come_is_told_and_gives_its_place_up(autojump_clock: MockClock) -> None:
    shares = FairShare(SHARE, patience_s=10)  # nobody runs it
    turn = greedy(shares)
    while await turn.wait_for_request():
        pass
    assert trio.current_time() == pytest.approx(10)
    assert not await turn.wait_for_request()
    assert trio.current_time() == pytest.approx(20)


async def test_a_cancelled_wait_leaves_the_line(nursery: trio.Nursery) -> None:
    shares, log = FairShare(SHARE, patience_s=60), list[str]()
    turn = greedy(shares)
    async with trio.open_nursery() as waiting:
        waiting.start_soon(flood, turn, "x", log)
        await wait_all_tasks_blocked()
        waiting.cancel_scope.cancel()
    nursery.start_soon(shares.run)
    with trio.fail_after(5):
        assert await turn.wait_for_request()


async def test_all_tasks_of_a_connection_stand_in_line_as_one(nursery: trio.Nursery) -> None:
    shares, log = FairShare(SHARE, patience_s=60), list[str]()
    nursery.start_soon(shares.run)
    many, one = greedy(shares), greedy(shares)
    for _ in range(20):
        nursery.start_soon(flood, many, "many", log)
    nursery.start_soon(flood, one, "one", log)
    while len(log) < 2000:
        await trio.lowlevel.checkpoint()
    assert log.count("one") > 0.45 * len(log), "twenty tasks get no more than one"
    assert log.count("many") > 20


# -- what is held for clients -----------------------------------------------------------------------------------------


def holder(budget: BufferBudget, gone: list[str], name: str) -> HeldBytes:
    holding = HeldBytes(budget)
    holding.on_evict = lambda: gone.append(name)
    return holding


async def test_over_the_limit_goes_who_held_the_most_for_the_longest(autojump_clock: MockClock) -> None:
    budget, gone = BufferBudget(1000), list[str]()
    stuck, small, busy = (holder(budget, gone, name) for name in ("stuck", "small", "busy"))
    stuck.add(400)
    small.add(1)
    await trio.sleep(10)
    for _ in range(100):  # what it holds at times is more than what the other holds always
        busy.add(500)
        await trio.sleep(0.001)
        busy.add(-500)
    assert not gone
    busy.add(700)
    assert gone == ["stuck"]
    assert budget.total == 701
    stuck.add(-400)
    assert budget.total == 701, "what it holds counts no more"


async def test_as_many_go_as_it_takes_and_a_connection_that_ends_gives_all_back(autojump_clock: MockClock) -> None:
    budget, gone = BufferBudget(1000), list[str]()
    each = [holder(budget, gone, str(number)) for number in range(10)]
    for holding in each:
        holding.add(100)
    await trio.sleep(1)
    late = holder(budget, gone, "late")
    late.add(250)
    assert len(gone) == 3 and "late" not in gone
    for holding in [*each, late]:
        holding.close()
        holding.close()
    assert budget.total == 0


async def test_who_alone_wants_more_than_the_limit_goes(autojump_clock: MockClock) -> None:
    budget, gone = BufferBudget(1000), list[str]()
    holder(budget, gone, "huge").add(1001)
    assert (gone, budget.total) == (["huge"], 0)
