"""A live process that rests is let go once, also when it ends by itself meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from clisup.daemon.runs.termination import Termination
from clisup.policy.watchdog import PhaseTracker, TurnTimeouts


class Resting:
    """A keeper whose process rests. The process ends during the look at its transcript if `ends` is true."""

    def __init__(self, *, ends: bool) -> None:
        self.ends, self.ending, self.exited, self.orders = ends, False, cast("Any", None), list[str]()

    def order_end(self, reason: str, _ladder: Any, *, after_s: float) -> None:
        self.orders.append(reason)


class Sink:
    def __init__(self, resting: Resting) -> None:
        self.resting = resting

    @property
    def turn(self) -> Any:
        assert self.resting.exited is None, "a run belongs to a turn, or waits for one"
        return SimpleNamespace(id="", ending=None)

    async def somebody_wrote(self) -> bool:
        self.resting.exited = object() if self.resting.ends else None
        return True

    def ending(self) -> None:
        pass


def termination(resting: Resting) -> Termination:
    batch = cast("Any", SimpleNamespace(store_now=lambda: None))
    return Termination(
        cast("Any", Sink(resting)), cast("Any", resting), batch, cast("Any", None), TurnTimeouts(), live=True, note=lambda *_: None,
        interrupt_message=lambda: None, cancel_approvals=lambda _: None, told=lambda: "part", tracker=PhaseTracker(),
    )  # fmt: skip


async def test_a_process_that_rests_is_ordered_to_end() -> None:
    resting = Resting(ends=False)
    await termination(resting).retire("idle")
    assert resting.orders == ["idle"]


async def test_a_process_that_ended_during_the_look_at_its_transcript_gets_no_order() -> None:
    resting = Resting(ends=True)
    await termination(resting).retire("idle")
    assert resting.orders == []
