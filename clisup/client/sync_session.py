"""A session with its typed events, turns and approvals: `client.open(...)` or `client.attach(session_id)` returns one.

Generated from `clisup/client/aio_session.py` by `make client`: change that file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal, Self, Unpack, overload

from clisup.client.answers import Approval, Decision, read
from clisup.client.events import ApprovalRequested, Envelope, Gap, TurnCompleted, envelope_of
from clisup.client.options import EventOptions, PromptOptions, given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.client.sync_requests import BlockingClosable, BlockingFollower, BlockingRequests
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

__all__ = ["BlockingApprovals", "BlockingEvents", "BlockingHistory", "BlockingSession", "BlockingTurn"]

CLOSING_S = 10.0
"""Seconds for which the end of an `with` block waits for the session to close, even when cancelled."""

Prompt = str | list[JsonObject]
_GONE = ("session_not_found", "session_closed")
_PAGE = 1000


class BlockingEvents(BlockingClosable):
    """Iterator over the `Envelope`s of one session, or of all. It reconnects, and gives each seq once."""

    def __init__(self, follower: BlockingFollower) -> None:
        self._follower = follower

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given, or a map of them for all sessions. Another iterator accepts the value as `after_seq`."""
        return self._follower.cursor

    def on_connection(self, *, lost: Callable[[], None] | None = None, back: Callable[[], None] | None = None) -> None:
        """Set functions to call when the connection breaks, and when it stands again."""
        self._follower.on_lost, self._follower.on_back = lost, back

    def open(self) -> Self:
        """Subscribe now. Without `after_seq`, "from now on" is this moment and not that of the first step."""
        self._follower.open()
        return self

    def __next__(self) -> Envelope:
        return envelope_of(next(self._follower))

    def ack(self, envelope: Envelope) -> None:
        """Acknowledge all events of the session up to this one: a later iterator of this `name` begins after it."""
        self._follower.ack({"type": "event", "session_id": envelope.session_id, "seq": envelope.seq})

    def close(self) -> None:
        """End the subscription; the iteration stops. A durable cursor stays."""
        self._follower.close()


class BlockingTurn(BlockingClosable):
    """Iterator over the `Envelope`s of one turn, made by `BlockingSession.run`.

    The last envelope is the `TurnCompleted`; then `result` is set. `accepted` and `id` are set once the turn has begun.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[PromptResult, BlockingEvents]],
        interrupt: Callable[[str], InterruptResult],
        approve: Callable[[str], None] | None = None,
    ) -> None:
        """`interrupt` ends the turn of an id. `approve` answers the approval of an id, unless it was answered already."""
        self._begin, self._interrupt, self._answer = begin, interrupt, approve
        self._events: BlockingEvents | None = None
        self._to_approve: str | None = None
        self.accepted: PromptResult
        self.result: TurnCompleted | None = None

    @property
    def id(self) -> str:
        """The turn's id. Raises `RuntimeError` before the prompt was sent."""
        if self.accepted is None:
            raise RuntimeError("a turn has no id before it has begun: `turn.begin()`, or take its first event")
        return self.accepted.turn_id

    def begin(self) -> Self:
        """Send the prompt now, and not at the first step."""
        self._begun()
        return self

    def __next__(self) -> Envelope:
        events = self._begun()
        self._approve()
        while self.result is None:
            envelope = next(events)
            event = envelope.event
            if envelope.turn_id != self.id and not isinstance(event, Gap):  # a gap may hide events of the turn
                continue
            if isinstance(event, TurnCompleted):
                self.result = event
                self.close()
            elif isinstance(event, ApprovalRequested):
                self._to_approve = event.approval_id
            return envelope
        raise StopIteration

    def interrupt(self) -> InterruptResult:
        """End the turn. The iteration still gives the rest of its events."""
        return self._interrupt(self.id)

    def close(self) -> None:
        """Stop listening. The turn goes on."""
        if self._events is not None:
            self._events.close()

    def _begun(self) -> BlockingEvents:
        if self._events is None:
            self.accepted, self._events = self._begin()
        return self._events

    def _approve(self) -> None:
        """Ask about the approval that the last event requested, unless it was answered already."""
        if self._to_approve is None or self._answer is None:
            return
        self._answer(self._to_approve)
        self._to_approve = None  # last, so that the step after a cancelled one asks again


class BlockingApprovals(BlockingClosable):
    """Endless iterator over pending approvals, each given once; made by `approvals` of a client."""

    def __init__(self, events: BlockingEvents, pending: Callable[[], list[Approval]]) -> None:
        self._events, self._pending = events, pending
        self._given: set[tuple[str, str]] = set()

    def __next__(self) -> Approval:
        self._events.open()  # before the first look, so that no request is missed
        while True:
            waiting = {(item.session_id, item.approval_id): item for item in self._pending()}
            self._given &= waiting.keys()
            for key, approval in waiting.items():
                if key not in self._given:
                    self._given.add(key)
                    return approval
            next(self._events)

    def close(self) -> None:
        """Stop listening; the iteration stops."""
        self._events.close()


class BlockingHistory(BlockingClosable):
    """Iterator over stored `Envelope`s, fetched by page."""

    def __init__(self, page: Callable[[int], JsonObject], after_seq: int) -> None:
        self._page, self._after, self._eof = page, after_seq, False
        self._ready: deque[Envelope] = deque()

    def __next__(self) -> Envelope:
        while not self._ready:
            if self._eof:
                raise StopIteration
            page = self._page(self._after)
            self._ready.extend(map(envelope_of, page["events"]))
            self._after, self._eof = page["next_seq"] - 1, page["eof"]
        return self._ready.popleft()

    def close(self) -> None:
        """End the iteration."""
        self._eof = True
        self._ready.clear()


class BlockingSession:
    """One session, by its `id`. The session outlives this object, the client and the daemon.

    In an `with` block the session is closed at the end. Every method raises `ClisupError` with the daemon's `kind`:
    `session_not_found`, `session_closed`, or `unsupported` by the backend.
    """

    def __init__(self, client: BlockingRequests, session_id: str, native_session_id: str | None = None) -> None:
        self._client, self.id, self.native_session_id = client, session_id, native_session_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    # -- prompts

    @overload
    def prompt(self, prompt: Prompt, *, wait: Literal[True] = True, **options: Unpack[PromptOptions]) -> TurnResult: ...
    @overload
    def prompt(self, prompt: Prompt, *, wait: Literal[False], **options: Unpack[PromptOptions]) -> PromptResult: ...
    def prompt(
        self, prompt: Prompt, *, wait: bool = True, **options: Unpack[PromptOptions]
    ) -> TurnResult | PromptResult:
        """Send a prompt and return the turn's result, also across restarts of the daemon; without `wait`, the acceptance.

        A lost request is repeated with the same `key`, which never prompts twice. A key is made if none is given. The result
        `delivery == "uncertain"` means: nobody knows whether the CLI received the prompt. The `evidence` tells more. Only
        the caller can decide to send the prompt again, with another key.
        """
        return self._prompt("session/prompt", {"prompt": prompt, **options}, wait=wait)

    def run(
        self,
        prompt: Prompt,
        *,
        deltas: bool = True,
        on_approval: Callable[[Approval], Decision] | None = None,
        **options: Unpack[PromptOptions],
    ) -> BlockingTurn:
        """Send a prompt, and iterate over the events of its turn. The trio client sends at the first step, or by `begin`.

        At the end, the iterator has the `result`. Without `deltas` text comes as whole messages. `on_approval` is called,
        between two events, whenever the turn waits for an approval. After `break` the turn goes on; `interrupt` ends it.
        """
        fixed: PromptOptions = {**options, "key": options.get("key") or new_key()}  # the same for a repeated first step

        def begin() -> tuple[PromptResult, BlockingEvents]:
            accepted = self.prompt(prompt, wait=False, **fixed)
            return accepted, self.turn_events(accepted.seq - 1, deltas=deltas)

        def approve(approval_id: str) -> None:
            for approval in self.open_approvals():
                if on_approval is not None and approval.approval_id == approval_id:
                    self.settle(approval, on_approval(approval))

        turn = BlockingTurn(begin, self.interrupt, None if on_approval is None else approve)
        return turn.begin()

    def interrupt(
        self, turn_id: str | None = None, *, mode: Literal["graceful", "kill"] = "graceful"
    ) -> InterruptResult:
        """End the running turn, or remove a queued turn. Raises `turn_not_found`."""
        params = given({"session_id": self.id, "turn_id": turn_id, "mode": mode})
        return read(InterruptResult, self._client.call("session/interrupt", **params), "session/interrupt")

    @overload
    def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: Literal[True] = True
    ) -> TurnResult: ...
    @overload
    def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: Literal[False]
    ) -> PromptResult: ...
    def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: bool = True
    ) -> TurnResult | PromptResult:
        """Compact the conversation, in a turn that is requested as reliably as a prompt."""
        return self._prompt("session/compact", {"instructions": instructions, "key": key}, wait=wait)

    # -- events and state

    def events(self, after_seq: int | None = None, **options: Unpack[EventOptions]) -> BlockingEvents:
        """Iterate over the session's events: from now on, after a seq, or 0 for all.

        The trio client subscribes at the first step, or by `open`.
        """
        return BlockingEvents(self._client._follower(self.id, after_seq, given(options)))

    def turn_events(self, after_seq: int, *, deltas: bool = True) -> BlockingEvents:
        """Iterate over events of a turn that the daemon has accepted: the first connection is retried, too."""
        return BlockingEvents(self._client._follower(self.id, after_seq, {"deltas": deltas}, expected=True))

    def history(self, after_seq: int = 0, *, types: list[str] | None = None, raw: bool = False) -> BlockingHistory:
        """Iterate over stored events, after a seq, to the end of the journal."""

        def page(after: int) -> JsonObject:
            return self._ask("session/events", after_seq=after, limit=_PAGE, types=types, raw=raw)

        return BlockingHistory(page, after_seq)

    def blob(self, blob: str) -> bytes:
        """Return the whole of a payload that was too large for its event, by the event's `blob`."""
        return self._client.blob(self.id, blob)

    def info(self) -> SessionDetail:
        """Return the session's state, queue, usage, timers and last events."""
        return read(SessionDetail, self._ask("session/get"), "session/get")

    def context_usage(self) -> JsonObject:
        """Return how full the model's context is, as the CLI reports it."""
        return self._ask("session/context_usage")

    def open_approvals(self) -> list[Approval]:
        """Return the session's pending approvals."""
        return self._client.open_approvals(self.id)

    def settle(self, approval: Approval, decision: Decision) -> None:
        """Answer an approval. An earlier answer by another client is no error."""
        self._client.settle(approval, decision)

    # -- settings

    def set_model(self, model: str) -> None:
        """Use another model from now on."""
        self._ask("session/set_model", model=model)

    def set_title(self, title: str) -> None:
        """Change the title that people see in lists: one line of at most 200 characters."""
        self._ask("session/set_title", title=title)

    def set_permission_mode(self, permission_mode: str) -> None:
        """Use another of the backend's permission modes from now on."""
        self._ask("session/set_permission_mode", permission_mode=permission_mode)

    def set_budget(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        turns: int | None = None,
        wall_s: float | None = None,
    ) -> JsonObject | None:
        """Replace the whole budget. None removes a limit. Past usage still counts."""
        budget = given({"usd": usd, "tokens": tokens, "turns": turns, "wall_s": wall_s})
        left: JsonObject | None = (self._ask("session/set_budget", budget=budget))["budget"]
        return left

    def note(self, code: str, message: str, *, data: JsonObject | None = None) -> int:
        """Write a notice into the session's journal and return its seq. The code begins with `client.`.

        The request is repeated after a restart of the daemon, so the notice may be there twice.
        """
        return int((self._ask("session/note", code=code, message=message, data=data))["seq"])

    def fork(self, *, session_id_new: str | None = None, at_turn: str | None = None) -> BlockingSession:
        """Open a new session with this conversation, whole or up to the end of `at_turn`. This session is not changed."""
        forked = self._ask("session/fork", session_id_new=session_id_new or new_key(), at_turn=at_turn)
        return BlockingSession(self._client, forked["session_id"], forked.get("native_session_id"))

    def diff(self, *, patch: bool = True, max_bytes: int | None = None) -> DiffResult:
        """Return the changes in the session's git worktree since its base commit."""
        return read(DiffResult, self._ask("session/diff", patch=patch, max_bytes=max_bytes), "session/diff")

    def land(self, *, commit: str | None = None) -> LandResult:
        """Fast-forward the branch that was checked out at the start. With `commit`, commit all changes first."""
        return read(LandResult, self._ask("session/land", commit=commit), "session/land")

    def discard(self) -> DiscardResult:
        """Close the session, and remove its git worktree and branch. A commit keeps the work until git prunes it."""
        raw = self._client.call("session/discard", session_id=self.id)
        return read(DiscardResult, raw, "session/discard")

    def close(self) -> None:
        """Close the session; a running turn is interrupted first. The record stays until `delete` or retention."""
        self._ask("session/close")

    def delete(self) -> None:
        """Remove the record of a closed session. The CLI's own transcript stays."""
        self._client.call("session/delete", session_id=self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, failure: BaseException | None, _trace: object) -> None:
        try:
            with nullcontext():
                (self.close if failure is None else self._close_once)()
        except ClisupError as error:
            if failure is None and error.kind not in _GONE:
                raise

    def _close_once(self) -> None:
        """Close the session without waiting for a daemon that is away."""
        self._client.call("session/close", session_id=self.id)

    def _ask(self, method: str, /, **params: Any) -> JsonObject:
        return self._client._sure(method, session_id=self.id, **params)

    def _prompt(self, method: str, params: JsonObject, *, wait: bool) -> TurnResult | PromptResult:
        raw = self._client._call_by_key(method, {"session_id": self.id, **given(params), "wait": wait})
        return read(TurnResult, raw, "a prompt") if wait else read(PromptResult, raw, "a prompt")
