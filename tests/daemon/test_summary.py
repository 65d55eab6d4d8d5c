"""The rows of many sessions: nobody waits for all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from clisup.daemon.ops import status as summary
from clisup.daemon.ops.status import AT_ONCE, summaries_of


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 10 * AT_ONCE])
async def test_others_have_their_turn_between_the_rows_of_many_sessions(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: Any = list(range(count))
    monkeypatch.setattr(summary, "summary_of", lambda session: {"id": session, "cwd": '/tmp/"é'})
    steps: list[int] = []
    served = turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        steps.append(served)

    async def others() -> None:
        nonlocal served
        while True:
            served += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        rows = await summaries_of(sessions, turn)
        nursery.cancel_scope.cancel()
    assert json.loads(rows) == [{"id": n, "cwd": '/tmp/"é'} for n in range(count)]
    assert turns == -(-count // AT_ONCE)
    # Trio shuffles who is first in a round, and each has one in it.
    assert not steps or steps[-1] - steps[0] >= turns - 2
