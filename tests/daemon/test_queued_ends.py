"""A queued turn that is ended without a start ends once, whatever comes between while the disk refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from clisup.daemon.limits.rate_limit_gate import Gate
from clisup.daemon.sessions.recorder import Item
from clisup.model.events import TurnCompleted, TurnError
from clisup.model.sessions.ledger import Turn
from tests.daemon.recorder_in_memory import MemoryJournal, recorder_in_memory

DONE = TurnCompleted(outcome="failed", error=TurnError(kind="budget", message="used up"))


class Disk:
    """Refuses the first write; until the second one a client does `meanwhile`."""

    def __init__(self) -> None:
        self.meanwhile: Any = lambda: None

    async def surely(self, action: Any) -> None:
        self.meanwhile()
        action()


@pytest.mark.parametrize("taken_back", [False, True])
def test_a_queued_turn_that_a_client_takes_back_meanwhile_is_not_ended_again(taken_back: bool) -> None:
    disk, journal = Disk(), MemoryJournal()

    async def main() -> None:
        recorder = recorder_in_memory(journal, disk)
        turn = Turn("t1")
        recorder.ledger.queue.append(turn)
        session = SimpleNamespace(
            recorder=recorder,
            ledger=recorder.ledger,
            dir=SimpleNamespace(drop_prompt=lambda _turn_id: None),
            completion=lambda done, memo, turn_id: Item(done, turn_id, memo=memo or None),
        )
        gate = Gate.__new__(Gate)
        gate._session = cast("Any", session)
        if taken_back:
            disk.meanwhile = lambda: recorder._record([session.completion(DONE, {}, turn_id="t1")])
        await gate.end(turn, DONE)

    trio.run(main)
    assert len([line for line in journal.lines if b'"turn_completed"' in line]) == 1
