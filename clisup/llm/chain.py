"""Chain of models: a failure without a trace is tried again, then the next model goes on with the conversation."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import trio

from clisup.client.nurseries import open_plain_nursery
from clisup.errors import UsageError
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, Finished, LanguageModel, Retracted, StreamEvent, Waiting
from clisup.llm.failures import DaemonUnavailable, InvalidRequest, LLMError
from clisup.llm.holding import HeldChat
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.names import ModelName
from clisup.llm.retrying import FALLBACK_ON, Fallback, OnFallback, OnRetry, Retry, RetryPolicy, falls_back
from clisup.llm.rounds import open_round
from clisup.llm.sound import NO_ANSWER, sound
from clisup.llm.streams import EventStream, stream_of

__all__ = ["ClientChat", "ModelChain"]

_ENDED = ("session_closed", "session_not_found")
"""Somebody else has ended the chat's session: no prompt will be taken there any more."""

_KEEPS = (InvalidRequest, DaemonUnavailable)
"""After these a turn waits on for the results of its tool calls."""


class ModelChain(ModelCalls):
    """Chain of models: each chat begins with the first, and the next goes on where that cannot answer (see `clisup.llm.Client`)."""

    def __init__(
        self,
        models: Sequence[LanguageModel],
        *,
        retry: RetryPolicy | None = None,
        on_retry: OnRetry | None = None,
        on_fallback: OnFallback | None = None,
        fallback_on: tuple[type[LLMError], ...] = FALLBACK_ON,
    ) -> None:
        self.models: tuple[LanguageModel, ...] = tuple(models)
        if not isinstance(retry, RetryPolicy | None):
            raise UsageError(
                f"cannot retry by {retry!r:.100}, because it is no policy",
                kind="usage",
                hint="give RetryPolicy(attempts=1) for no second try",
            )
        self.retry = retry or RetryPolicy()
        self.on_retry, self.on_fallback, self.fallback_on = on_retry, on_fallback, fallback_on

    def __repr__(self) -> str:
        return f"Client({', '.join(map(_name, self.models))})"

    async def end_sessions(self, labels: Mapping[str, str]) -> int:
        """As `Model.end_sessions`, at the daemons of all its models."""
        ends = [getattr(model, "end_sessions", None) for model in self.models]
        return sum([await end(labels) for end in ends if end is not None])

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        async with open_plain_nursery() as nursery:
            chat = ClientChat(self, options, nursery)
            await chat.open()
            yield chat


class ClientChat:
    """Made by `Client.chat`. `messages` is the conversation so far."""

    def __init__(self, client: ModelChain, options: ChatOptions, nursery: trio.Nursery) -> None:
        self._client, self._options, self._nursery = client, options, nursery
        self.messages: tuple[Message, ...] = tuple(options.history)
        self._place = 0
        self._held: HeldChat | None = None

    @property
    def model(self) -> ModelName:
        """Who answers now."""
        return self._open_one.chat.model

    @property
    def session_id(self) -> str | None:
        """Of the session that answers now."""
        return self._open_one.chat.session_id

    def park(self) -> None:
        """Have a turn that waits for results outlive this chat."""
        if self._held is not None and (park := getattr(self._held.chat, "park", None)) is not None:
            park()

    async def note(self, code: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Write a notice into the session that answers now, where it has a journal."""
        if (note := getattr(self._open_one.chat, "note", None)) is not None:
            await note(code, message, data)

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """The events of one answer. `Retracted(all=True)` where it begins anew, `Waiting` before a pause."""
        return EventStream(self._events(prompt, output_schema))

    async def open(self) -> None:
        """Open the first chat that can be opened."""
        attempt = 1
        self._place = next((n for n, model in enumerate(self._client.models) if _waits(model, self._options)), 0)
        while self._held is None:
            try:
                await self._chat(None)
            except LLMError as error:
                attempt = await self._carry_out(self._plan(error, attempt))

    async def _events(
        self, prompt: Prompt, output_schema: Mapping[str, Any] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        attempt, given = 1, False
        while True:
            try:
                chat, said = await self._chat(prompt)
                async with stream_of(chat, said, output_schema=output_schema) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            self.messages = (*self.messages, *as_messages(prompt), *event.completion.messages)
                        given = True
                        yield event
                return
            except LLMError as error:
                if error.kind in _ENDED or (open_round(self.messages) is not None and not isinstance(error, _KEEPS)):
                    self._leave()  # no turn waits for the same results any more
                plan = self._plan(error, attempt)
            if given:
                yield Retracted(f"another try, after {plan.error.kind}", all=True)
                given = False
            if isinstance(plan, Retry):
                yield Waiting(f"retry: {plan.error.kind}", plan.delay_s)
            attempt = await self._carry_out(plan)

    def _plan(self, error: LLMError, attempt: int) -> Retry | Fallback:
        """What to do about a failure. Raises it where that is nothing."""
        client, model = self._client, self._client.models[self._place]
        delay_s = client.retry.delay_s(error, attempt, chance=random.random(), now=datetime.now(UTC))
        if delay_s is not None:
            return Retry(_name(model), attempt, delay_s, error)
        if self._place + 1 < len(client.models) and falls_back(error, client.fallback_on):
            return Fallback(_name(model), _name(client.models[self._place + 1]), error)
        raise error

    async def _carry_out(self, plan: Retry | Fallback) -> int:
        """Do it, and give the number of the attempt that is next."""
        if isinstance(plan, Retry):
            await _tell(self._client.on_retry, plan)
            await trio.sleep(plan.delay_s)
            return plan.attempt + 1
        await _tell(self._client.on_fallback, plan)
        self._place += 1
        self._leave()
        return 1

    def _leave(self) -> None:
        """The next prompt opens another chat, with all that was said."""
        if self._held is not None:
            self._held.leave()
            self._held = None

    # -- the chat that answers

    @property
    def _open_one(self) -> HeldChat:
        if self._held is None:
            raise RuntimeError("the chat has no model at present: the last one failed, and the next was not asked yet")
        return self._held

    def _history(self, prompt: Prompt | None) -> tuple[tuple[Message, ...], Prompt | None]:
        """Return the history in the form that every backend takes, and the prompt that comes next. Some CLIs count the ids of calls anew
        in each turn, and an answer may have no word at its end. The caller's own history stays as it is.
        """
        if len(self.messages) == len(self._options.history):
            return self.messages, prompt
        if prompt is not None and open_round(self.messages) is not None:
            *before, said = sound((*self.messages, *as_messages(prompt)))
            return tuple(before), said
        last = self.messages[-1]
        ended = last.role == "assistant" and last.text
        return sound(self.messages if ended else (*self.messages, Message.assistant(NO_ANSWER))), prompt

    async def _chat(self, prompt: Prompt | None) -> tuple[Chat, Prompt]:
        """The chat that answers, opened with all that was said where it is not open yet, and the prompt for it."""
        said = prompt
        if self._held is None or self._held.left:
            self._held = None
            history, said = self._history(prompt)
            options = replace(self._options, history=history)
            self._held = await HeldChat.open(self._nursery, self._client.models[self._place], options)
        return self._held.chat, "" if said is None else said


def _waits(model: LanguageModel, options: ChatOptions) -> bool:
    """Return whether a chat of this model waits for the results that come next."""
    waits = getattr(model, "has_parked", None)
    return waits is not None and bool(waits(options))


async def _tell(whom: Callable[[Any], Awaitable[None] | None] | None, what: Retry | Fallback) -> None:
    if whom is not None and inspect.isawaitable(told := whom(what)):
        await told


def _name(model: LanguageModel) -> str:
    return str(getattr(model, "name", type(model).__name__))
