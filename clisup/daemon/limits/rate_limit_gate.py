"""The gate before a session's next turn: its account's rate limit holds it back, where the prompt did not ask to be refused; a
budget that is used up ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from clisup.daemon.limits.accounts import Held
from clisup.daemon.sessions.recorder import Item
from clisup.errors import WorldError
from clisup.model.events import Notice, TurnCompleted, TurnError
from clisup.model.sessions.ledger import Turn
from clisup.policy.rate_limit import iso

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["Gate"]


class Gate:
    """One session's way to its next turn, and to its account."""

    __slots__ = ("_session", "_told", "account", "brought")

    def __init__(self, session: Session, request_env: Mapping[str, str]) -> None:
        self._session = session
        self.account = session.services.accounts.of(session.backend, request_env)
        self._told: tuple[str, float | None] | None = None
        self.brought = request_env  # the variables of its client

    def renew(self) -> None:
        """Its backend has other credentials, perhaps: then it belongs to another account, at the end of that one's line."""
        account = self._session.services.accounts.of(self._session.backend, self.brought)
        if account is not self.account:
            self.account.leave(self._session)
            self.account, self._told = account, None

    def part(self) -> None:
        """Its session is deleted, and keeps its account no more."""
        self.account = self._session.services.accounts.nobodys

    def held(self) -> Held | None:
        """Why a new turn would have to wait now."""
        return self.account.held(self._session)

    def refuse(self) -> None:
        """Raises `WorldError(rate_limited)` where a turn would have to wait."""
        if (held := self.held()) is None:
            return
        until = f"until {iso(held.until)}" if held.until is not None else "until another turn has tried it"
        raise WorldError(
            f"cannot prompt session {self._session.id} now, because the account {held.account} is limited {until}",
            kind="rate_limited",
            hint="try again then, or use when_limited: wait",
            **{name: value for name, value in held.words().items() if value is not None},
        )

    async def opens(self, turn: Turn) -> bool:
        """May the next turn begin now? Else it was ended, or waited for a while: the caller looks again."""
        if await self._session.budgets.end_queued(turn):
            return False
        if (held := self.held()) is None:
            return True
        await self._hold(turn, held)
        return False

    async def end(self, turn: Turn, done: TurnCompleted) -> None:
        """End a turn that has not begun. Not where a client took it back while the disk refused: a turn ends once."""
        session = self._session

        def items() -> list[Item]:
            return [session.completion(done, {}, turn_id=turn.id)] if session.ledger.turn(turn.id) is not None else []

        await session.recorder.record_surely(items)
        session.dir.drop_prompt(turn.id)

    async def _hold(self, turn: Turn, held: Held) -> None:
        """Wait a while, or end the turn where its prompt asked for that."""
        session = self._session
        prompt = await session.services.storage.surely(lambda: session.dir.load_prompt(turn.id))
        if (prompt or {}).get("when_limited") == "refuse":
            await self.end(turn, _refused(held))
            return
        self.account.wait(session)
        if self._told != (turn.id, held.until):
            self._told = (turn.id, held.until)
            await session.recorder.record_surely(lambda: [Item(_notice(held), turn.id)])
        with trio.move_on_after(held.sleep_s):
            await session.work.wait()


def _notice(held: Held) -> Notice:
    until = f"until {iso(held.until)}" if held.until is not None else "until one turn has tried whether it is over"
    text = f"the account {held.account} is limited: the turn is held {until}, at place {held.position} in the line"
    return Notice(code="held", message=text)


def _refused(held: Held) -> TurnCompleted:
    message = f"the account {held.account} is limited, and the prompt was not to wait for its end"
    error = TurnError(
        kind="rate_limit",
        message=message,
        retryable=True,
        retry_after_s=held.retry_after_s,
        resets_at=iso(held.until),
    )
    return TurnCompleted(outcome="failed", error=error)
