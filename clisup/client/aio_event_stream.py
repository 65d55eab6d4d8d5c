"""The trio client's iterators of what is typed: what `clisup.client.event_stream` is to the blocking one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from clisup.client.aio_following import Subscription
from clisup.client.answers import Approval, Decision, ends_turn, of_turn
from clisup.client.events import ApprovalRequested, Envelope, TurnCompleted, envelope_of
from clisup.wire.models import InterruptResult, PromptResult

if TYPE_CHECKING:
    from clisup.client.aio_calls import AsyncCalls
    from clisup.client.aio_session import AsyncSession

__all__ = ["AsyncApprovals", "AsyncEvents", "AsyncTurn"]


class AsyncEvents:
    """An asynchronous iterator of `Envelope`s. It comes back by itself when the daemon does, each seq given once."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given; of all sessions a map of them. What another may be given as `after_seq`."""
        return self._subscription.cursor

    def on_connection(self, *, lost: Callable[[], None] | None = None, back: Callable[[], None] | None = None) -> None:
        """Be told when the connection breaks, and when it stands again."""
        self._subscription.on_lost, self._subscription.on_back = lost, back

    async def open(self) -> Self:
        """Subscribe now: where no `after_seq` was given, "from now on" is this moment and not that of the first step."""
        await self._subscription.open()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope:
        return envelope_of(await anext(self._subscription))

    async def ack(self, envelope: Envelope) -> None:
        """Be done with everything of its session up to it, for good: the next of this `name` begins after it."""
        await self._subscription.ack({"type": "event", "session_id": envelope.session_id, "seq": envelope.seq})

    def close(self) -> None:
        """End the subscription; the iteration stops. A durable place stays."""
        self._subscription.close()


class AsyncTurn:
    """An asynchronous iterator of one turn's `Envelope`s, made by `AsyncSession.run`.

    The last one is its `TurnCompleted`; then `result` is set. `accepted` and `id` are there once it has begun.
    """

    def __init__(
        self,
        session: AsyncSession,
        begin: Callable[[], Awaitable[tuple[PromptResult, AsyncEvents]]],
        on_approval: Callable[[Approval], Awaitable[Decision]] | None,
    ) -> None:
        self._session, self._begin, self._on_approval = session, begin, on_approval
        self._events: AsyncEvents | None = None
        self._to_approve: str | None = None
        self.accepted: PromptResult | None = None
        self.result: TurnCompleted | None = None

    @property
    def id(self) -> str:
        """The turn's id. Raises `RuntimeError` before the prompt was sent."""
        if self.accepted is None:
            raise RuntimeError("a turn has no id before it has begun: `await turn.begin()`, or take its first event")
        return self.accepted.turn_id

    async def begin(self) -> Self:
        """Send the prompt now, and not at the first step."""
        await self._begun()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope:
        events = await self._begun()
        await self._approve()
        while self.result is None:
            envelope = await anext(events)
            if not of_turn(envelope, self.id):
                continue
            if (end := ends_turn(envelope, self.id)) is not None:
                self.result = end
                self.close()
            elif isinstance(envelope.event, ApprovalRequested):
                self._to_approve = envelope.event.approval_id
            return envelope
        raise StopAsyncIteration

    async def interrupt(self) -> InterruptResult:
        """End the turn. The iteration still gives what is left of it."""
        return await self._session.interrupt(self.id)

    def close(self) -> None:
        """Stop listening. The turn goes on."""
        if self._events is not None:
            self._events.close()

    async def _begun(self) -> AsyncEvents:
        if self._events is None:
            self.accepted, self._events = await self._begin()
        return self._events

    async def _approve(self) -> None:
        """Ask about the approval that was given with the last event, unless it was answered already."""
        if self._to_approve is None or self._on_approval is None:
            return
        for approval in await self._session.open_approvals():
            if approval.approval_id == self._to_approve:
                await self._session.settle(approval, await self._on_approval(approval))
        self._to_approve = None  # at last: a step that is cancelled before asks once more


class AsyncApprovals:
    """An endless iterator of approvals that wait for an answer, each given once; made by `AsyncClient.approvals`."""

    def __init__(self, client: AsyncCalls, session_id: str) -> None:
        self._client, self._of = client, None if session_id == "*" else session_id
        self._events = client.events(session_id, types=["approval_requested"])
        self._given: set[tuple[str, str]] = set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Approval:
        await self._events.open()  # before the first look: none is missed
        while True:
            waiting = {
                (item.session_id, item.approval_id): item for item in await self._client.open_approvals(self._of)
            }
            self._given &= waiting.keys()
            for key, approval in waiting.items():
                if key not in self._given:
                    self._given.add(key)
                    return approval
            await anext(self._events)

    def close(self) -> None:
        """Stop listening; the iteration stops."""
        self._events.close()
