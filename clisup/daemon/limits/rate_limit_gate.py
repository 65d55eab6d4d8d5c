"""Wait before a turn while the account's rate limit holds."""

from __future__ import annotations

import trio

from clisup.daemon.journal.recorder import Item
from clisup.daemon.limits.accounts import AccountWait
from clisup.daemon.sessions.context import SessionContext
from clisup.errors import WorldError
from clisup.model.events import Notice, TurnCompleted, TurnError
from clisup.model.sessions.ledger import TurnRecord
from clisup.policy.rate_limit import iso

__all__ = ["RateLimitGate"]


class RateLimitGate:
    """Connection of a session to its account."""

    __slots__ = ("_context", "_reported", "account")

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self.account = context.services.accounts.account_of(context.backend, context.request_env)
        self._reported: tuple[str, float | None] | None = None

    def backend_changed(self) -> None:
        """Move to the account of the backend's present credentials, to the end of the account's queue."""
        account = self._context.services.accounts.account_of(self._context.backend, self._context.request_env)
        if account is not self.account:
            self.account.leave(self._context.id)
            self.account, self._reported = account, None

    def leave_account(self) -> None:
        """Release the account: the session is deleted."""
        self.account = self._context.services.accounts.unused

    def held(self) -> AccountWait | None:
        """Return why a new turn would have to wait now, or None."""
        return self.account.held(self._context.id)

    def refuse(self) -> None:
        """Raise `WorldError(rate_limited)` if a turn would have to wait."""
        if (held := self.held()) is None:
            return
        until = f"until {iso(held.until)}" if held.until is not None else "until another turn has tried it"
        raise WorldError(
            f"the account {held.account} is limited {until}, so session {self._context.id} accepts no prompt now",
            kind="rate_limited",
            hint="try again then, or use when_limited: wait",
            **{name: value for name, value in held.describe().items() if value is not None},
        )

    async def wait(self, turn: TurnRecord, held: AccountWait) -> TurnCompleted | None:
        """Wait for a while. Return the turn's end if its prompt refuses to wait."""
        context = self._context
        prompt = await context.services.storage.with_retry(lambda: context.load_prompt(turn.id))
        if prompt is not None and prompt.get("when_limited") == "refuse":
            return _refused(held)
        self.account.join(context.id, context.notify)
        if self._reported != (turn.id, held.until):
            self._reported = (turn.id, held.until)
            await context.recorder.record_with_retry(lambda: [Item(_notice(held), turn.id)])
        with trio.move_on_after(held.sleep_s):
            await context.work.wait()
        return None


def _notice(held: AccountWait) -> Notice:
    until = f"until {iso(held.until)}" if held.until is not None else "until one turn has tried whether it is over"
    text = f"the account {held.account} is limited: the turn is held {until}, at place {held.position} in the line"
    return Notice(code="held", message=text)


def _refused(held: AccountWait) -> TurnCompleted:
    message = f"the account {held.account} is limited, and the prompt refuses to wait"
    error = TurnError(
        kind="rate_limit",
        message=message,
        retryable=True,
        retry_after_s=held.retry_after_s,
        resets_at=iso(held.until),
    )
    return TurnCompleted(outcome="failed", error=error)
