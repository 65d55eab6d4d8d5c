"""Events and approvals of the trio client: the calls for them, and the iterators that give them typed."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar, Unpack

from clisup.client.aio_following import Subscription
from clisup.client.answers import Approval, Decision, answering, approvals_of, ends_turn, of_turn, read, settled
from clisup.client.events import ApprovalRequested, Envelope, TurnCompleted, envelope_of
from clisup.client.options import EventOptions
from clisup.errors import ClisupError
from clisup.wire.models import InterruptResult, PromptResult

__all__ = ["AsyncApprovals", "AsyncEventCalls", "AsyncEvents", "AsyncTurn"]

_T = TypeVar("_T")


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
        begin: Callable[[], Awaitable[tuple[PromptResult, AsyncEvents]]],
        interrupt: Callable[[str], Awaitable[InterruptResult]],
        approve: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`interrupt` ends the turn of an id; `approve` answers the approval of an id, unless it was answered already."""
        self._begin, self._interrupt, self._answer = begin, interrupt, approve
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
        return await self._interrupt(self.id)

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
        if self._to_approve is None or self._answer is None:
            return
        await self._answer(self._to_approve)
        self._to_approve = None  # at last: a step that is cancelled before asks once more


class AsyncApprovals:
    """An endless iterator of approvals that wait for an answer, each given once; made by `AsyncClient.approvals`."""

    def __init__(self, client: AsyncEventCalls, session_id: str) -> None:
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


class AsyncEventCalls:
    """Calls for events and approvals, by name, and the ways to call any method."""

    async def call(self, method: str, /, **params: Any) -> Any:
        """Any method of the protocol, as it is on the wire."""
        raise NotImplementedError

    async def _call_surely(self, method: str, /, **params: Any) -> Any:
        raise NotImplementedError

    def subscribe(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Any
    ) -> Subscription:
        """Events as dicts."""
        raise NotImplementedError

    # -- events

    def events(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Unpack[EventOptions]
    ) -> AsyncEvents:
        """As `subscribe`, typed: an asynchronous iterator of `Envelope`s of a session, or of all (`"*"`)."""
        given = {name: value for name, value in options.items() if value is not None}
        return AsyncEvents(self.subscribe(session_id, after_seq, **given))

    async def forget(self, name: str, session_id: str = "*") -> None:
        """Drop the durable place of this name."""
        await self._sure("session/unsubscribe", session_id=session_id, name=name)

    async def blob(self, session_id: str, blob: str) -> bytes:
        """The whole of a payload that was too large for its event."""
        pages: list[bytes] = []
        offset = 0
        while True:
            page = await self._sure("session/blob", session_id=session_id, blob=blob, offset=offset)
            pages.append(b64decode(page["data_base64"]))
            offset += len(pages[-1])
            if page["eof"] or not pages[-1]:
                return b"".join(pages)

    # -- approvals

    async def open_approvals(self, session_id: str | None = None) -> list[Approval]:
        """The approvals that wait for an answer now, of a session or of all."""
        return approvals_of(await self._sure("approval/list", session_id=session_id))

    def approvals(self, session_id: str = "*") -> AsyncApprovals:
        """An endless iterator of approvals that wait for an answer: those that are open now, then each as it comes."""
        return AsyncApprovals(self, session_id)

    async def respond(self, approval: Approval | str, decision: Decision, *, session_id: str | None = None) -> None:
        """Answer an approval; the first answer wins. With an id alone, `session_id` says whose it is, else all are looked through.

        Raises `approval_already_resolved` where somebody was first, `approval_not_found`. None answers nothing.
        """
        if (params := answering(approval, decision, session_id)) is not None:
            await self.call("approval/respond", **params)

    async def answer_approvals(self, handler: Callable[[Approval], Awaitable[Decision]], session_id: str = "*") -> None:
        """Ask `handler` about each approval that waits, one after the other, and send what it gives; without end.

        That somebody else answered first, or the turn ended meanwhile, is no error.
        """
        async for approval in self.approvals(session_id):
            await self.settle(approval, await handler(approval))

    async def settle(self, approval: Approval, decision: Decision) -> None:
        """`respond`, where it does not matter who was first; asked again after a restart."""
        if (params := answering(approval, decision)) is None:
            return
        try:
            await self._sure("approval/respond", **params)
        except ClisupError as error:
            if not settled(error):
                raise

    # -- how they are asked

    async def _sure(self, method: str, /, **params: Any) -> Any:
        """`call`, again after each restart: for what may be asked twice. Params that are None are left out."""
        return await self._call_surely(method, **{name: value for name, value in params.items() if value is not None})

    async def _read(self, type_: type[_T], method: str, /, **params: Any) -> _T:
        return read(type_, await self._sure(method, **params), method)
