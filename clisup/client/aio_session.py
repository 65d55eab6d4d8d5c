"""A session with its typed events, turns and approvals: `client.open(...)` or `client.attach(session_id)` returns one.

`clisup.client.sync_session` is generated from this file by `make client`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Self, Unpack, overload

import trio  # blocking: from contextlib import nullcontext

from clisup.client.aio_requests import AsyncClosable, AsyncFollower, AsyncRequests
from clisup.client.answers import Approval, Decision, read
from clisup.client.events import ApprovalRequested, Envelope, Gap, TurnCompleted, envelope_of
from clisup.client.options import EventOptions, PromptOptions, given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.errors import ClisupError
from clisup.wire.results import (
    DiffResult,
    DiscardResult,
    InterruptResult,
    LandResult,
    PromptResult,
    SessionDetail,
    TurnResult,
)

__all__ = ["AsyncApprovals", "AsyncEvents", "AsyncHistory", "AsyncSession", "AsyncTurn"]

CLOSING_S = 10.0
"""Seconds for which the end of an `async with` block waits for the session to close, even when cancelled."""

Prompt = str | list[JsonObject]
_GONE = ("session_not_found", "session_closed")
_PAGE = 1000


class AsyncEvents(AsyncClosable):
    """Iterator over the `Envelope`s of one session, or of all. It reconnects, and gives each seq once."""

    def __init__(self, follower: AsyncFollower) -> None:
        self._follower = follower

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given, or a map of them for all sessions. Another iterator accepts the value as `after_seq`."""
        return self._follower.cursor

    def on_connection(self, *, lost: Callable[[], None] | None = None, back: Callable[[], None] | None = None) -> None:
        """Set functions to call when the connection breaks, and when it stands again."""
        self._follower.on_lost, self._follower.on_back = lost, back

    async def open(self) -> Self:
        """Subscribe now. Without `after_seq`, "from now on" is this moment and not that of the first step."""
        await self._follower.open()
        return self

    async def __anext__(self) -> Envelope:
        return envelope_of(await anext(self._follower))

    async def ack(self, envelope: Envelope) -> None:
        """Acknowledge all events of the session up to this one: a later iterator of this `name` begins after it."""
        await self._follower.ack({"type": "event", "session_id": envelope.session_id, "seq": envelope.seq})

    def close(self) -> None:
        """End the subscription; the iteration stops. A durable cursor stays."""
        self._follower.close()


class AsyncTurn(AsyncClosable):
    """Iterator over the `Envelope`s of one turn, made by `AsyncSession.run`.

    The last envelope is the `TurnCompleted`; then `result` is set. `accepted` and `id` are set once the turn has begun.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[tuple[PromptResult, AsyncEvents]]],
        interrupt: Callable[[str], Awaitable[InterruptResult]],
        approve: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`interrupt` ends the turn of an id. `approve` answers the approval of an id, unless it was answered already."""
        self._begin, self._interrupt, self._answer = begin, interrupt, approve
        self._events: AsyncEvents | None = None
        self._to_approve: str | None = None
        self.accepted: PromptResult | None = None  # blocking: self.accepted: PromptResult
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

    async def __anext__(self) -> Envelope:
        events = await self._begun()
        await self._approve()
        while self.result is None:
            envelope = await anext(events)
            event = envelope.event
            if envelope.turn_id != self.id and not isinstance(event, Gap):  # a gap may hide events of the turn
                continue
            if isinstance(event, TurnCompleted):
                self.result = event
                self.close()
            elif isinstance(event, ApprovalRequested):
                self._to_approve = event.approval_id
            return envelope
        raise StopAsyncIteration

    async def interrupt(self) -> InterruptResult:
        """End the turn. The iteration still gives the rest of its events."""
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
        """Ask about the approval that the last event requested, unless it was answered already."""
        if self._to_approve is None or self._answer is None:
            return
        await self._answer(self._to_approve)
        self._to_approve = None  # last, so that the step after a cancelled one asks again


class AsyncApprovals(AsyncClosable):
    """Endless iterator over pending approvals, each given once; made by `approvals` of a client."""

    def __init__(self, events: AsyncEvents, pending: Callable[[], Awaitable[list[Approval]]]) -> None:
        self._events, self._pending = events, pending
        self._given: set[tuple[str, str]] = set()

    async def __anext__(self) -> Approval:
        await self._events.open()  # before the first look, so that no request is missed
        while True:
            waiting = {(item.session_id, item.approval_id): item for item in await self._pending()}
            self._given &= waiting.keys()
            for key, approval in waiting.items():
                if key not in self._given:
                    self._given.add(key)
                    return approval
            await anext(self._events)

    def close(self) -> None:
        """Stop listening; the iteration stops."""
        self._events.close()


class AsyncHistory(AsyncClosable):
    """Iterator over stored `Envelope`s, fetched by page."""

    def __init__(self, page: Callable[[int], Awaitable[JsonObject]], after_seq: int) -> None:
        self._page, self._after, self._eof = page, after_seq, False
        self._ready: deque[Envelope] = deque()

    async def __anext__(self) -> Envelope:
        while not self._ready:
            if self._eof:
                raise StopAsyncIteration
            page = await self._page(self._after)
            self._ready.extend(map(envelope_of, page["events"]))
            self._after, self._eof = page["next_seq"] - 1, page["eof"]
        return self._ready.popleft()

    def close(self) -> None:
        """End the iteration."""
        self._eof = True
        self._ready.clear()


class AsyncSession:
    """One session, by its `id`. The session outlives this object, the client and the daemon.

    In an `async with` block the session is closed at the end. Every method raises `ClisupError` with the daemon's `kind`:
    `session_not_found`, `session_closed`, or `unsupported` by the backend.
    """

    def __init__(self, client: AsyncRequests, session_id: str, native_session_id: str | None = None) -> None:
        self._client, self.id, self.native_session_id = client, session_id, native_session_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    # -- prompts

    @overload
    async def prompt(
        self, prompt: Prompt, *, wait: Literal[True] = True, **options: Unpack[PromptOptions]
    ) -> TurnResult: ...
    @overload
    async def prompt(
        self, prompt: Prompt, *, wait: Literal[False], **options: Unpack[PromptOptions]
    ) -> PromptResult: ...
    async def prompt(
        self, prompt: Prompt, *, wait: bool = True, **options: Unpack[PromptOptions]
    ) -> TurnResult | PromptResult:
        """Send a prompt and return the turn's result, also across restarts of the daemon; without `wait`, the acceptance.

        A lost request is repeated with the same `key`, which never prompts twice. A key is made if none is given. The result
        `delivery == "uncertain"` means: nobody knows whether the CLI received the prompt. The `evidence` tells more. Only
        the caller can decide to send the prompt again, with another key.
        """
        return await self._prompt("session/prompt", {"prompt": prompt, **options}, wait=wait)

    def run(
        self,
        prompt: Prompt,
        *,
        deltas: bool = True,
        on_approval: Callable[[Approval], Awaitable[Decision]] | None = None,
        **options: Unpack[PromptOptions],
    ) -> AsyncTurn:
        """Send a prompt, and iterate over the events of its turn. The trio client sends at the first step, or by `begin`.

        At the end, the iterator has the `result`. Without `deltas` text comes as whole messages. `on_approval` is called,
        between two events, whenever the turn waits for an approval. After `break` the turn goes on; `interrupt` ends it.
        """
        fixed: PromptOptions = {**options, "key": options.get("key") or new_key()}  # the same for a repeated first step

        async def begin() -> tuple[PromptResult, AsyncEvents]:
            accepted = await self.prompt(prompt, wait=False, **fixed)
            return accepted, self.turn_events(accepted.seq - 1, deltas=deltas)

        async def approve(approval_id: str) -> None:
            for approval in await self.open_approvals():
                if on_approval is not None and approval.approval_id == approval_id:
                    await self.settle(approval, await on_approval(approval))

        turn = AsyncTurn(begin, self.interrupt, None if on_approval is None else approve)
        return turn  # noqa: RET504  # blocking: return turn.begin()

    async def interrupt(
        self, turn_id: str | None = None, *, mode: Literal["graceful", "kill"] = "graceful"
    ) -> InterruptResult:
        """End the running turn, or remove a queued turn. Raises `turn_not_found`."""
        params = given({"session_id": self.id, "turn_id": turn_id, "mode": mode})
        return read(InterruptResult, await self._client.call("session/interrupt", **params), "session/interrupt")

    @overload
    async def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: Literal[True] = True
    ) -> TurnResult: ...
    @overload
    async def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: Literal[False]
    ) -> PromptResult: ...
    async def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: bool = True
    ) -> TurnResult | PromptResult:
        """Compact the conversation, in a turn that is requested as reliably as a prompt."""
        return await self._prompt("session/compact", {"instructions": instructions, "key": key}, wait=wait)

    # -- events and state

    def events(self, after_seq: int | None = None, **options: Unpack[EventOptions]) -> AsyncEvents:
        """Iterate over the session's events: from now on, after a seq, or 0 for all.

        The trio client subscribes at the first step, or by `open`.
        """
        return AsyncEvents(self._client._follower(self.id, after_seq, given(options)))

    def turn_events(self, after_seq: int, *, deltas: bool = True) -> AsyncEvents:
        """Iterate over events of a turn that the daemon has accepted: the first connection is retried, too."""
        return AsyncEvents(self._client._follower(self.id, after_seq, {"deltas": deltas}, expected=True))

    def history(self, after_seq: int = 0, *, types: list[str] | None = None, raw: bool = False) -> AsyncHistory:
        """Iterate over stored events, after a seq, to the end of the journal."""

        async def page(after: int) -> JsonObject:
            return await self._ask("session/events", after_seq=after, limit=_PAGE, types=types, raw=raw)

        return AsyncHistory(page, after_seq)

    async def blob(self, blob: str) -> bytes:
        """Return the whole of a payload that was too large for its event, by the event's `blob`."""
        return await self._client.blob(self.id, blob)

    async def info(self) -> SessionDetail:
        """Return the session's state, queue, usage, timers and last events."""
        return read(SessionDetail, await self._ask("session/get"), "session/get")

    async def context_usage(self) -> JsonObject:
        """Return how full the model's context is, as the CLI reports it."""
        return await self._ask("session/context_usage")

    async def open_approvals(self) -> list[Approval]:
        """Return the session's pending approvals."""
        return await self._client.open_approvals(self.id)

    async def settle(self, approval: Approval, decision: Decision) -> None:
        """Answer an approval. An earlier answer by another client is no error."""
        await self._client.settle(approval, decision)

    # -- settings

    async def set_model(self, model: str) -> None:
        """Use another model from now on."""
        await self._ask("session/set_model", model=model)

    async def set_title(self, title: str) -> None:
        """Change the title that people see in lists: one line of at most 200 characters."""
        await self._ask("session/set_title", title=title)

    async def set_permission_mode(self, permission_mode: str) -> None:
        """Use another of the backend's permission modes from now on."""
        await self._ask("session/set_permission_mode", permission_mode=permission_mode)

    async def set_budget(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        turns: int | None = None,
        wall_s: float | None = None,
    ) -> JsonObject | None:
        """Replace the whole budget. None removes a limit. Past usage still counts."""
        budget = given({"usd": usd, "tokens": tokens, "turns": turns, "wall_s": wall_s})
        left: JsonObject | None = (await self._ask("session/set_budget", budget=budget))["budget"]
        return left

    async def note(self, code: str, message: str, *, data: JsonObject | None = None) -> int:
        """Write a notice into the session's journal and return its seq. The code begins with `client.`.

        The request is repeated after a restart of the daemon, so the notice may be there twice.
        """
        return int((await self._ask("session/note", code=code, message=message, data=data))["seq"])

    async def fork(self, *, session_id_new: str | None = None, at_turn: str | None = None) -> AsyncSession:
        """Open a new session with this conversation, whole or up to the end of `at_turn`. This session is not changed."""
        forked = await self._ask("session/fork", session_id_new=session_id_new or new_key(), at_turn=at_turn)
        return AsyncSession(self._client, forked["session_id"], forked.get("native_session_id"))

    async def diff(self, *, patch: bool = True, max_bytes: int | None = None) -> DiffResult:
        """Return the changes in the session's git worktree since its base commit."""
        return read(DiffResult, await self._ask("session/diff", patch=patch, max_bytes=max_bytes), "session/diff")

    async def land(self, *, commit: str | None = None) -> LandResult:
        """Fast-forward the branch that was checked out at the start. With `commit`, commit all changes first."""
        return read(LandResult, await self._ask("session/land", commit=commit), "session/land")

    async def discard(self) -> DiscardResult:
        """Close the session, and remove its git worktree and branch. A commit keeps the work until git prunes it."""
        raw = await self._client.call("session/discard", session_id=self.id)
        return read(DiscardResult, raw, "session/discard")

    async def close(self) -> None:
        """Close the session; a running turn is interrupted first. The record stays until `delete` or retention."""
        await self._ask("session/close")

    async def delete(self) -> None:
        """Remove the record of a closed session. The CLI's own transcript stays."""
        await self._client.call("session/delete", session_id=self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _type: object, failure: BaseException | None, _trace: object) -> None:
        try:
            with trio.move_on_after(CLOSING_S, shield=True):  # blocking: with nullcontext():
                await self.close()  # blocking: (self.close if failure is None else self._close_once)()
        except ClisupError as error:
            if failure is None and error.kind not in _GONE:
                raise

    async def _close_once(self) -> None:
        """Close the session without waiting for a daemon that is away."""
        await self._client.call("session/close", session_id=self.id)

    async def _ask(self, method: str, /, **params: Any) -> JsonObject:
        return await self._client._sure(method, session_id=self.id, **params)

    async def _prompt(self, method: str, params: JsonObject, *, wait: bool) -> TurnResult | PromptResult:
        raw = await self._client._call_by_key(method, {"session_id": self.id, **given(params), "wait": wait})
        return read(TurnResult, raw, "a prompt") if wait else read(PromptResult, raw, "a prompt")
