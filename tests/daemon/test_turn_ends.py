"""A queued turn that is ended without a start ends once, whatever comes between while the disk refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from clisup.daemon.journal.recorder import Item
from clisup.daemon.sessions.turn_ends import TurnEnds
from clisup.model.events import TurnCompleted, TurnError
from clisup.model.sessions.ledger import TurnRecord
from tests.daemon.recorder_in_memory import MemoryJournal, recorder_in_memory

DONE = TurnCompleted(outcome="failed", error=TurnError(kind="budget", message="used up"))


class Disk:
    """Refuses the first write; until the second one a client does `meanwhile`."""

    def __init__(self) -> None:
        self.meanwhile: Any = lambda: None

    async def with_retry(self, action: Any) -> None:
        self.meanwhile()
        action()


@pytest.mark.parametrize("taken_back", [False, True])
def test_a_queued_turn_that_a_client_takes_back_meanwhile_is_not_ended_again(taken_back: bool) -> None:
    disk, journal = Disk(), MemoryJournal()

    async def main() -> None:
        recorder = recorder_in_memory(journal, disk)
        turn = TurnRecord("t1")
        recorder.ledger.queue.append(turn)
        session = SimpleNamespace(
            recorder=recorder,
            ledger=recorder.ledger,
            dir=SimpleNamespace(drop_prompt=lambda _turn_id: None),
        )
        ends = TurnEnds(cast("Any", session), *[cast("Any", None)] * 3)
        ends.completion = lambda done, memo, *, turn_id=None: Item(done, turn_id, memo=memo or None)  # type: ignore[method-assign]
        if taken_back:
            disk.meanwhile = lambda: recorder._record([Item(DONE, "t1")])
        await ends.end_queued(turn, DONE)

    trio.run(main)
    assert len([line for line in journal.lines if b'"turn_completed"' in line]) == 1
