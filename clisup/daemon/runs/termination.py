"""Termination of a run, or of one turn: the journal first, then a request in the CLI's protocol, then the ladder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.keeper_link import KeeperLink
from clisup.daemon.runs.run_parts import RunSink
from clisup.daemon.runs.stdin_messages import StdinMessages
from clisup.errors import WorldError
from clisup.model.events import EventBase, Notice
from clisup.model.sessions.turn_state import Told, TurnEnding, TurnState
from clisup.policy.watchdog import Ladder, PhaseTracker, TurnTimeouts, is_polite, ladder_for

__all__ = ["LOGIN_GRACE_S", "Termination"]

LOGIN_GRACE_S = 15.0
"""Seconds without a signal after the CLI reported a refused login. A CLI that is ended between its request for another token and
the store loses the login, because the old token is void. A slow host of tokens takes that long."""


class Termination:
    """Termination of one run. The reason is journaled before the order goes out, so that the next daemon knows the reason.

    `note` journals an event. `interrupt_message` returns the request to end the turn in the CLI's protocol, or None.
    `cancel_approvals` cancels the open approvals. `told` tells how far the CLI has come, for `TurnEnding`. `tracker` is the
    run's.
    """

    def __init__(
        self,
        sink: RunSink,
        keeper: KeeperLink,
        batch: Batch,
        stdin: StdinMessages,
        timeouts: TurnTimeouts,
        *,
        live: bool,
        note: Callable[[EventBase, TurnState | None], None],
        interrupt_message: Callable[[], str | None],
        cancel_approvals: Callable[[TurnEnding], None],
        told: Callable[[], Told],
        tracker: PhaseTracker,
    ) -> None:
        self._sink = sink
        self._keeper = keeper
        self._batch = batch
        self._stdin = stdin
        self._timeouts = timeouts
        self._live = live
        self._note_event = note
        self._interrupt_message = interrupt_message
        self._cancel_approvals = cancel_approvals
        self._told = told
        self._tracker = tracker
        self.retired: str | None = None  # reason to end the whole process by the end of stdin

    def set_timeouts(self, timeouts: TurnTimeouts) -> None:
        """Change the timers."""
        self._timeouts = timeouts

    def resume(self) -> None:
        """Repeat the order of an earlier daemon. The keeper may already have the order."""
        ending = self._sink.turn.ending
        if ending and self._live and not self._sink.turn.id:
            self.retired = str(ending["reason"])
        if ending and not self._keeper.ending:
            grace = self._timeouts.int_grace if self._sink.turn.id else self._timeouts.linger
            grace = grace if self._live and "asked" in ending else 0
            self._order(str(ending["reason"]), ladder_for("term", self._timeouts), after_s=grace)

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        """End the turn or run. A second call only shortens the first. A second polite call changes nothing.

        If the CLI's protocol has a request to end a turn, the daemon sends the request first. The request replaces SIGINT
        and gets the time of SIGINT. The rest of the ladder follows if the CLI does not obey.
        """
        after_s = 0.0
        if self._sink.turn.ending is None and not self._keeper.ending:
            renews = self._tracker.phase == "login" and not reason.startswith("retry:")  # those have renewed it in vain
            after_s = LOGIN_GRACE_S if ladder and renews else 0.0
            message = self._interrupt_message() if is_polite(ladder) else None
            number = self._stdin.next_id() if message is not None else None
            later = self._live and message is not None and self._keeper.exited is None  # by `send_when_ready`
            ending = cast("TurnEnding", {"reason": reason, "told": self._told(), **why})
            if number is not None or later:
                ending["asked"] = reason
            self._cancel_approvals(ending)
            # The reason is journaled before the CLI gets a request or signal, so that the next daemon knows it after a kill.
            # A live process that obeys the request ends its turn, and stays.
            what = "turn" if self._live and "asked" in ending else "run"
            self._note(f"the {what} is being ended: {reason}", ending)
            if "asked" in ending:
                if message is not None and number is not None:
                    self._keeper.say(number, message)
                self._order(reason, ladder[1:], after_s=max(after_s, ladder[0][1]))
                return
        elif is_polite(ladder) and "asked" in (self._sink.turn.ending or {}) and self._live and self._keeper.waits:
            return
        self._order(reason, ladder, after_s=after_s)

    def repeat_interrupt(self) -> None:
        """Send the request again, because the CLI is reachable now or the turn begins.

        claude 2.1.329 accepts an earlier request without effect.
        """
        ending = self._sink.turn.ending
        if not ending or "asked" not in ending or (message := self._interrupt_message()) is None:
            return
        if (number := self._stdin.next_id()) is not None:
            self._keeper.say(number, message)

    async def send_when_ready(self) -> None:
        """Send an earlier order to a live CLI as soon as the CLI is reachable.

        An earlier daemon may have sent the order already. The CLI ignores the second order.
        """
        await self._keeper.ready()
        ending = self._sink.turn.ending
        if not self._live:
            return
        if self._sink.turn.id:
            self.repeat_interrupt()
        elif ending and "asked" in ending and (number := self._stdin.next_id()) is not None:
            self._keeper.say(number, None)

    def mark_retired(self, reason: str) -> bool:
        """Give a live process that waits for its next turn no other one. Return False if it is at work, or is being ended."""
        if self._keeper.ending or self._sink.turn.id:
            return False
        self.retired = reason
        return True

    async def retire(self, reason: str) -> None:
        """End a live process that waits for its next turn: by the end of stdin, then by the ladder.

        A process whose transcript somebody else wrote on is killed: at a polite end it would write that its own last message is the
        newest one, and the CLI would forget the others (claude 2.1.332).
        """
        if self.mark_retired(reason):
            kill = await self._sink.somebody_wrote()
            if self._keeper.exited is None:  # the process may have ended during the look
                self._let_go(reason, kill=kill)

    def _let_go(self, reason: str, *, kill: bool = False) -> None:
        if not self.mark_retired(reason):
            return
        number = None if kill else self._stdin.next_id()
        ending = TurnEnding(reason=reason)
        if number is not None:
            ending["asked"] = reason
        self._note(f"the live process is let go: {reason}", ending)
        if number is not None:
            self._keeper.say(number, None)
        after_s = self._timeouts.linger if number is not None else 0
        self._order(reason, ladder_for("kill" if kill else "graceful", self._timeouts), after_s=after_s)

    def turn_began(self) -> None:
        """Let a retiring process finish a turn that has just begun. The process takes no further turn."""
        if self.retired is not None:
            self._keeper.withdraw_order()

    def turn_ended(self) -> None:
        """Withdraw the order, because the CLI has obeyed. Resume a delayed retirement of the process."""
        self._keeper.withdraw_order()
        if self.retired is not None:
            self._let_go(self.retired)

    def _note(self, message: str, ending: TurnEnding) -> None:
        self._note_event(Notice(code="ending", message=message), {"ending": ending})
        with suppress(WorldError):  # a full disk must not delay the end: the pump stores the notice later
            self._batch.store_now()

    def _order(self, reason: str, ladder: Ladder, *, after_s: float = 0) -> None:
        self._sink.ending()
        self._keeper.order_end(reason, ladder, after_s=after_s)
