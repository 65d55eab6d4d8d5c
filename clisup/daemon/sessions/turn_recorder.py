"""Where a run's events go: into the journal of its session, under the turn that they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from clisup.backends.base import Background, Carried, background_of
from clisup.daemon.sessions.recorder import Item
from clisup.host import clock
from clisup.model.events import Actor, ApprovalRequested, ContentDelta, TurnError, TurnStarted
from clisup.model.lifecycle import Cause
from clisup.model.sessions.ledger import Turn
from clisup.model.terminal import Terminal
from clisup.model.usage import NO_USAGE, Usage
from clisup.model.verdict import ExitRecord, conclude

if TYPE_CHECKING:
    from clisup.daemon.runs.run import Run
    from clisup.daemon.sessions.session import Session

__all__ = ["Place", "TurnSink", "carry"]

Place = dict[str, int]
"""How far both spools have been read: {"out": bytes, "err": bytes}."""


class TurnSink:
    """The sink of a run that serves one turn, and such as its CLI begins by itself after that."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._began = clock.monotonic()

    @property
    def turn(self) -> Turn:
        """The turn that runs; between two turns of a live process, one without an id."""
        turn = self._session.ledger.held
        assert turn is not None, "a run belongs to a turn, or waits for one"
        return turn

    @property
    def carried(self) -> Carried:
        """What a decoder has to know of the turns before."""
        ledger = self._session.ledger
        nothing_yet = 0.0 if self._session.spec.begins_at_zero else None
        cost = nothing_yet if ledger.cost_total_usd is None else ledger.cost_total_usd
        unused = None if nothing_yet is None else NO_USAGE
        usage = unused if ledger.usage_total is None else msgspec.convert(ledger.usage_total, Usage)
        return Carried(cost_usd=cost, usage=usage, background=background_of(self.turn.background))

    def record(self, items: Sequence[Item]) -> int:
        """Journal the items. Raises `WorldError(storage_failed)`."""
        events = [item.event for item in items if type(item.event) is not ContentDelta]
        self._session.gate.account.see(*events)
        for event in events:
            self._session.budgets.see(event)
        seq = self._session.recorder.record(items)
        self._session.services.opened.settle(self._session)  # the CLI may have told its native id
        return seq

    def first_frame(self) -> None:
        """The CLI has begun to speak of the turn."""
        self._session.recorder.meter.first_event(clock.monotonic())
        self._session.advance(Cause.FIRST_FRAME)

    def ending(self) -> None:
        """The run is being ended."""
        if self._session.ledger.current is not None:
            self._session.advance(Cause.END)

    def asked(self, event: ApprovalRequested) -> None:
        """The CLI waits for a word on a tool call; it is journaled."""
        self._session.approvals.asked(event)

    def give_up(self, ending: Mapping[str, Any]) -> list[Item]:
        """The turn is being ended, and nobody's word is waited for any longer: what to journal."""
        actor = ending.get("actor")
        return self._session.approvals.cancelled("end", msgspec.convert(actor, Actor) if actor else None)

    async def attend(self, run: Run) -> None:
        """Decide what the run's CLI asks, and hold it to the session's budget, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._session.budgets.attend, run)
            await self._session.approvals.attend(run)

    def lap(self) -> float:
        """Seconds since the turn began; the next one begins now."""
        now = clock.monotonic()
        lap, self._began = now - self._began, now
        return round(lap, 3)

    def over(self, terminal: Terminal, place: Place, background: Background) -> list[Item]:
        """The turn's end, by the CLI's last word, in a process that goes on from `place`."""
        done = conclude(
            terminal=terminal,
            record=ExitRecord(reason="exit"),
            ending=self.turn.ending,
            explained=_NO_LAST_WORD,
            duration_s=self.lap(),
        )
        memo = carry(self._session, terminal, answered=True) | {"begin": place, "background": dict(background)}
        return [self._session.completion(done, memo)]

    def begins(self, place: Place, background: Background, prompt_ids: tuple[str, ...]) -> list[Item]:
        """A follow-up of the CLI's own, or the turn of a prompt that could not be merged into the one that it was meant for."""
        steers = self._session.ledger.steers
        steer = next((steers[known] for known in prompt_ids if known in steers), None)
        memo = {"begin": place, "background": dict(background)}
        event = TurnStarted(
            run=self.turn.run,
            origin="backend" if steer is None else "prompt",
            key=steer.get("key") if steer else None,
            prompt_ids=prompt_ids,
        )
        self.lap()
        return [Item(event, self._session.next_turn_id(), memo=memo)]

    def began(self) -> None:
        """Such a turn is journaled."""

    def idle(self, given_up: frozenset[str]) -> list[Item]:
        """The CLI says that it has nothing left to do. `given_up` are the prompts that it has taken back since it last was."""
        return []

    def rested(self) -> None:
        """A turn is over and the process waits for the next one."""


def carry(session: Session, terminal: Terminal | None, *, answered: bool) -> dict[str, Any]:
    """The CLI's running totals after a turn, as a memo.

    Where the model had answered and the CLI did not live to tell its total of usage, that is unknown from here on: the next
    turn must not be charged for this one.
    """
    carried: dict[str, Any] = {}
    if terminal is not None and terminal.cost_total_usd is not None:
        carried["cost_total_usd"] = terminal.cost_total_usd
    if terminal is not None and terminal.usage_total is not None:
        carried["usage_total"] = msgspec.to_builtins(terminal.usage_total)
    elif answered and session.backend.adapter.capabilities.running_usage:
        carried["usage_total"] = msgspec.to_builtins(Usage())
    return carried


_NO_LAST_WORD = TurnError(kind="crashed", message="the CLI ended without a last word")
