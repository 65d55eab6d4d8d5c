"""A session of the trio client: what `clisup.client.session` is to the blocking one."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Self, Unpack, overload

import trio

from clisup.client.aio_event_stream import AsyncEventCalls, AsyncEvents, AsyncTurn
from clisup.client.answers import Approval, Decision, prompted, read
from clisup.client.coming_back import new_key
from clisup.client.events import Envelope, envelope_of
from clisup.client.options import EventOptions, PromptOptions
from clisup.errors import ClisupError
from clisup.wire.models import InterruptResult, PromptResult, SessionDetail, TurnResult

__all__ = ["AsyncHistory", "AsyncSession"]

CLOSING_S = 10.0
"""How long the end of an `async with` block waits for the session to close, also when it is cancelled."""

Prompt = str | list[dict[str, Any]]
_GONE = ("session_not_found", "session_closed")
_PAGE = 1000


class AsyncSession:
    """One session, by its `id`. It outlives this object, the client and the daemon; in an `async with` block it is closed at
    the end.

    Every method raises `ClisupError` with the daemon's `kind`: `session_not_found`, `session_closed`, `unsupported` where the
    backend cannot do it.
    """

    def __init__(self, client: AsyncEventCalls, session_id: str, native_session_id: str | None = None) -> None:
        self._client, self.id, self.native_session_id = client, session_id, native_session_id

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"

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
        """Send a prompt and give the turn's result, also across restarts of the daemon; without `wait`, its acceptance.

        When the daemon goes away it is asked again by the same `key` (made here where none is given), which never prompts
        twice. A result with `delivery == "uncertain"` says that nobody saw whether the CLI took the prompt, with the
        `evidence`: to send it once more, under another key, is the caller's decision.
        """
        raw = await self._ask("session/prompt", **{"key": new_key(), "prompt": prompt, "wait": wait} | _given(options))
        return prompted(raw, wait=wait)

    def run(
        self,
        prompt: Prompt,
        *,
        deltas: bool = True,
        on_approval: Callable[[Approval], Awaitable[Decision]] | None = None,
        **options: Unpack[PromptOptions],
    ) -> AsyncTurn:
        """An iterator that sends a prompt at its first step (or by `await turn.begin()`) and gives the events of its turn.

        `result` of it is then the end. Without `deltas` text comes by whole messages. `on_approval` is asked, between two
        events, whenever the turn waits for an approval. Leaving the iteration leaves the turn running: `interrupt` ends it.
        """
        fixed: PromptOptions = {
            **options,
            "key": options.get("key") or new_key(),
        }  # a cancelled first step is taken again

        async def begin() -> tuple[PromptResult, AsyncEvents]:
            accepted = await self.prompt(prompt, wait=False, **fixed)
            events = self._client.events(self.id, accepted.seq - 1, deltas=deltas)
            events._subscription.expected = True  # the turn goes on, also where the daemon goes away just now
            return accepted, events

        async def approve(approval_id: str) -> None:
            for approval in await self.open_approvals():
                if on_approval is not None and approval.approval_id == approval_id:
                    await self.settle(approval, await on_approval(approval))

        return AsyncTurn(begin, self.interrupt, None if on_approval is None else approve)

    async def interrupt(
        self, turn_id: str | None = None, *, mode: Literal["graceful", "kill"] = "graceful"
    ) -> InterruptResult:
        """End the running turn, or take a queued one out of the queue. Raises `turn_not_found` where there is none."""
        params = _given({"session_id": self.id, "turn_id": turn_id, "mode": mode})
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
        """Have the CLI compact the conversation: a turn of its own, asked for as surely as a prompt."""
        raw = await self._ask("session/compact", instructions=instructions, key=key or new_key(), wait=wait)
        return prompted(raw, wait=wait)

    # -- what it says

    def events(self, after_seq: int | None = None, **options: Unpack[EventOptions]) -> AsyncEvents:
        """An iterator over its events: from the first step (or `await events.open()`) on, after a seq, or 0 for all of them."""
        return self._client.events(self.id, after_seq, **options)

    def history(self, after_seq: int = 0, *, types: list[str] | None = None, raw: bool = False) -> AsyncHistory:
        """What is stored, after a seq; the iteration ends where the journal ends."""

        async def page(after: int) -> dict[str, Any]:
            found: dict[str, Any] = await self._ask(
                "session/events", after_seq=after, limit=_PAGE, types=types, raw=raw
            )
            return found

        return AsyncHistory(page, after_seq)

    async def blob(self, blob: str) -> bytes:
        """The whole of a payload that was too large for its event, by the event's `blob`."""
        return await self._client.blob(self.id, blob)

    async def info(self) -> SessionDetail:
        """Its state, queue, usage, timers and last events."""
        return read(SessionDetail, await self._ask("session/get"), "session/get")

    async def context_usage(self) -> dict[str, Any]:
        """How full the model's context is, as the CLI says."""
        usage: dict[str, Any] = await self._ask("session/context_usage")
        return usage

    async def open_approvals(self) -> list[Approval]:
        """Its approvals that wait for an answer now."""
        return await self._client.open_approvals(self.id)

    async def settle(self, approval: Approval, decision: Decision) -> None:
        """Answer an approval; that somebody was first is no error."""
        await self._client.settle(approval, decision)

    # -- what it is

    async def set_model(self, model: str) -> None:
        """Use another model from here on."""
        await self._ask("session/set_model", model=model)

    async def set_permission_mode(self, permission_mode: str) -> None:
        """Use another of the backend's permission modes from here on."""
        await self._ask("session/set_permission_mode", permission_mode=permission_mode)

    async def set_budget(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        turns: int | None = None,
        wall_s: float | None = None,
    ) -> dict[str, Any] | None:
        """Give it another budget, in the place of the whole one: what is None is not limited. What was used stays used."""
        limits = {"usd": usd, "tokens": tokens, "turns": turns, "wall_s": wall_s}
        budget = {name: value for name, value in limits.items() if value is not None}
        answer: dict[str, dict[str, Any] | None] = await self._ask("session/set_budget", budget=budget)
        return answer["budget"]

    async def note(self, code: str, message: str, *, data: dict[str, Any] | None = None) -> int:
        """Write a notice of your own into its journal, under a code that begins with `client.`; the notice's seq.

        Asked again after a restart of the daemon, it may stand there twice.
        """
        return int((await self._ask("session/note", code=code, message=message, data=data))["seq"])

    async def fork(self, *, session_id_new: str | None = None, at_turn: str | None = None) -> AsyncSession:
        """A new session with this one's conversation, up to the end of `at_turn` or whole. This one stays as it is."""
        forked = await self._ask("session/fork", session_id_new=session_id_new or new_key(), at_turn=at_turn)
        return AsyncSession(self._client, forked["session_id"], forked.get("native_session_id"))

    async def close(self) -> None:
        """Close it; a running turn is interrupted first. Its record stays until `delete` or retention."""
        await self._ask("session/close")

    async def delete(self) -> None:
        """Remove a closed session's record; the CLI's own transcript is not touched."""
        await self._client.call("session/delete", session_id=self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _type: object, failure: BaseException | None, _trace: object) -> None:
        with trio.move_on_after(CLOSING_S, shield=True):
            try:
                await self.close()
            except ClisupError as error:
                if failure is None and error.kind not in _GONE:
                    raise

    async def _ask(self, method: str, /, **params: Any) -> Any:
        return await self._client._sure(method, session_id=self.id, **params)


class AsyncHistory:
    """An asynchronous iterator of stored `Envelope`s, fetched by page."""

    def __init__(self, page: Callable[[int], Awaitable[dict[str, Any]]], after_seq: int) -> None:
        self._page, self._after, self._eof = page, after_seq, False
        self._ready: deque[Envelope] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope:
        while not self._ready:
            if self._eof:
                raise StopAsyncIteration
            page = await self._page(self._after)
            self._ready.extend(map(envelope_of, page["events"]))
            self._after, self._eof = page["next_seq"] - 1, page["eof"]
        return self._ready.popleft()


def _given(params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
