"""The blocking client's iterators of what is typed: events, one turn's events, and approvals that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from clisup.client.answers import Approval, Decision, ends_turn, of_turn
from clisup.client.events import ApprovalRequested, Envelope, TurnCompleted, envelope_of
from clisup.client.following import Follower
from clisup.wire.models import InterruptResult, PromptResult

if TYPE_CHECKING:
    from clisup.client.calls import Calls
    from clisup.client.session import Session

__all__ = ["Approvals", "Events", "Turn"]


class Events:
    """An iterator of `Envelope`s of one session, or of all. It comes back by itself when the daemon does, each seq given once."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given; of all sessions a map of them. What another may be given as `after_seq`."""
        return self._follower.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Envelope:
        return envelope_of(next(self._follower))

    def ack(self, envelope: Envelope) -> None:
        """Be done with everything of its session up to it, for good: the next of this `name` begins after it."""
        self._follower.ack({"type": "event", "session_id": envelope.session_id, "seq": envelope.seq})

    def close(self) -> None:
        """End the subscription. A durable place stays."""
        self._follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Turn:
    """An iterator of one turn's `Envelope`s, made by `Session.run`; the last is its `TurnCompleted`, then `result` is set."""

    def __init__(
        self,
        session: Session,
        accepted: PromptResult,
        events: Events,
        on_approval: Callable[[Approval], Decision] | None,
    ) -> None:
        self._session, self._events, self._on_approval = session, events, on_approval
        self._to_approve: str | None = None
        self.accepted, self.id = accepted, accepted.turn_id
        self.result: TurnCompleted | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Envelope:
        self._approve()
        while self.result is None:
            envelope = next(self._events)
            if not of_turn(envelope, self.id):
                continue
            if (end := ends_turn(envelope, self.id)) is not None:
                self.result = end
                self.close()
            elif isinstance(envelope.event, ApprovalRequested):
                self._to_approve = envelope.event.approval_id
            return envelope
        raise StopIteration

    def interrupt(self) -> InterruptResult:
        """End the turn. The iteration still gives what is left of it."""
        return self._session.interrupt(self.id)

    def close(self) -> None:
        """Stop listening. The turn goes on."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _approve(self) -> None:
        """Ask about the approval that was given with the last event, unless it was answered already."""
        wanted, self._to_approve = self._to_approve, None
        if wanted is None or self._on_approval is None:
            return
        for approval in self._session.open_approvals():
            if approval.approval_id == wanted:
                self._session.settle(approval, self._on_approval(approval))


class Approvals:
    """An endless iterator of approvals that wait for an answer, each given once; made by `Client.approvals`."""

    def __init__(self, client: Calls, session_id: str) -> None:
        self._client, self._of = client, None if session_id == "*" else session_id
        self._events = client.events(session_id, types=["approval_requested"])  # before the first look: none is missed
        self._given: set[tuple[str, str]] = set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Approval:
        while True:
            waiting = {(item.session_id, item.approval_id): item for item in self._client.open_approvals(self._of)}
            self._given &= waiting.keys()
            for key, approval in waiting.items():
                if key not in self._given:
                    self._given.add(key)
                    return approval
            next(self._events)

    def close(self) -> None:
        """Stop listening."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
