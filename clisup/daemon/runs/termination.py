"""How a run, or one turn of it, is ended: the journal first, a polite word where the CLI takes one, then the ladder."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.keeper_link import Leash
from clisup.errors import WorldError
from clisup.model.events import EventBase, Notice
from clisup.model.sessions.ledger import Turn
from clisup.policy.watchdog import Ladder, TurnTimeouts, is_polite, ladder_for

__all__ = ["Ended", "Ending"]


class Ended(Protocol):
    """What the end asks of its run."""

    @property
    def turn(self) -> Turn:
        """The turn that runs; between two turns of a live process, one without an id."""

    @property
    def decoded_to(self) -> int:
        """The end of the last stdout line that was decoded."""

    def polite_word(self) -> str | None:
        """How to ask the CLI, in its own protocol, to end its turn."""

    def give_up(self, ending: dict[str, Any]) -> None:
        """What the CLI asks is not waited for any longer."""

    def turn_ends(self) -> None:
        """The turn is being ended."""

    def note(self, event: EventBase, memo: dict[str, Any] | None = None) -> None:
        """Journal a word of the daemon's own."""


class Ending:
    """One run's. The reason goes into the journal before the order goes out, so that a next daemon knows it."""

    def __init__(self, run: Ended, leash: Leash, batch: Batch, timeouts: TurnTimeouts, *, live: bool) -> None:
        self._run = run
        self._leash = leash
        self._batch = batch
        self._timeouts = timeouts
        self._live = live
        self.retired: str | None = None  # why the process as a whole is let go, by the end of its stdin

    def renew(self, timeouts: TurnTimeouts) -> None:
        """Other limits, from now on."""
        self._timeouts = timeouts

    def resume(self) -> None:
        """A daemon before this one had decided to end it; whether the keeper heard of that is not known."""
        ending = self._run.turn.ending
        if ending and self._live and not self._run.turn.id:
            self.retired = str(ending["reason"])
        if ending and not self._leash.ending:
            grace = self._timeouts.int_grace if self._run.turn.id else self._timeouts.linger
            grace = grace if self._live and "asked" in ending else 0
            self._order(str(ending["reason"]), ladder_for("term", self._timeouts), after_s=grace)

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        """End it. A second call only shortens; as polite a one as the first changes nothing while the CLI has its time.

        A CLI whose protocol has a word for it is asked first, in place of SIGINT and for as long; the rest of the ladder is
        for one that does not do it then.
        """
        if self._run.turn.ending is None and not self._leash.ending:
            word = self._run.polite_word() if is_polite(ladder) else None
            number = self._leash.take_id(self._run.decoded_to) if word is not None else None
            later = self._live and word is not None and self._leash.exited is None  # `when_ready` says it
            asked = {"asked": reason} if number is not None or later else {}
            self._run.give_up(why)
            self._note(f"the run is being ended: {reason}", {"reason": reason, **why, **asked})
            if asked:
                if word is not None and number is not None:
                    self._leash.say(number, word)
                self._order(reason, ladder[1:], after_s=ladder[0][1])
                return
        elif is_polite(ladder) and "asked" in (self._run.turn.ending or {}) and self._live and self._leash.waits:
            return
        self._order(reason, ladder)

    def insist(self) -> None:
        """Ask again: now that something can be said, or that the turn begins. Asked before that, claude 2.1.329 says yes and
        does nothing.
        """
        ending = self._run.turn.ending
        if not ending or "asked" not in ending or (word := self._run.polite_word()) is None:
            return
        if (number := self._leash.take_id(self._run.decoded_to)) is not None:
            self._leash.say(number, word)

    async def when_ready(self) -> None:
        """Ask a live CLI for its end as soon as it can be spoken to, where that was decided before.

        A daemon before this one may have said it already: to hear it twice does the CLI no harm.
        """
        await self._leash.ready()
        ending = self._run.turn.ending or {}
        if not self._live:
            return
        if self._run.turn.id:
            self.insist()
        elif "asked" in ending and (number := self._leash.take_id(self._run.decoded_to)) is not None:
            self._leash.say(number, None)

    def retire(self, reason: str) -> None:
        """Let a live process go that waits for its next turn: by the end of its stdin, and the ladder where it stays."""
        if self._leash.ending or self._run.turn.id:
            return
        self.retired = reason
        number = self._leash.take_id(self._run.decoded_to)
        asked = {"asked": reason} if number is not None else {}
        self._note(f"the live process is let go: {reason}", {"reason": reason, **asked})
        if number is not None:
            self._leash.say(number, None)
        self._order(reason, ladder_for("graceful", self._timeouts), after_s=self._timeouts.linger if asked else 0)

    def turn_began(self) -> None:
        """The CLI has begun a turn of its own. Let go in the same moment, it may end that first: it takes no other after it."""
        if self.retired is not None:
            self._leash.withdraw_order()

    def turn_over(self) -> None:
        """The CLI did what it was asked for; and one that was being let go before leaves now."""
        self._leash.withdraw_order()
        if self.retired is not None:
            self.retire(self.retired)

    def _note(self, message: str, ending: dict[str, Any]) -> None:
        self._run.note(Notice(code="ending", message=message), memo={"ending": ending})
        with suppress(WorldError):  # a full disk delays no end: the pump tries again, and tells of it
            self._batch.store_now()

    def _order(self, reason: str, ladder: Ladder, *, after_s: float = 0) -> None:
        self._run.turn_ends()
        self._leash.order_end(reason, ladder, after_s=after_s)
