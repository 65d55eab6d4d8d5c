"""Retries and fallbacks: a failed request is repeated, then the next model goes on with the conversation.

Nothing is repeated after a tool call, because nobody knows its effect the second time.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import trio

from clisup.client.nurseries import open_plain_nursery
from clisup.llm.answers import Finished, ModelName, Retracted, StreamEvent, Waiting
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import (
    Authentication,
    BackendUnavailable,
    ContextOverflow,
    DaemonUnavailable,
    Failed,
    InvalidRequest,
    LLMError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    TimedOut,
    usage_error,
)
from clisup.llm.histories import NO_ANSWER, open_round, valid_history
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.streams import EventStream, HeldChat, stream_of

FALLBACK_ON: tuple[type[LLMError], ...] = (
    Authentication,
    BackendUnavailable,
    ContextOverflow,
    DaemonUnavailable,
    Failed,
    ModelNotFound,
    Overloaded,
    RateLimited,
    TimedOut,
)
"""Failures that another model may not have. Wrong requests, refusals, budgets and interrupts fail with every model."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Policy of repetitions. `attempts` counts all tries of one model at one prompt, with the first.

    The pause before the nth repetition is `first_delay_s * factor ** (n - 1)`, at most `max_delay_s`, and shorter by a random share
    up to `jitter`. If the backend names a time, the pause is that time plus the jitter. A time above `max_retry_after_s` is not
    waited for: the next model answers, or the error is raised.
    """

    attempts: int = 3
    first_delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.5
    max_retry_after_s: float = 120.0

    def delay_s(self, error: LLMError, attempt: int, *, chance: float, now: datetime) -> float | None:
        """Return the pause after a failed attempt (from 1), or None for no repetition. `chance` is in [0, 1)."""
        if error.side_effects or not error.retryable or attempt >= self.attempts:
            return None
        backoff = min(self.first_delay_s * self.factor ** (attempt - 1), self.max_delay_s)
        told = _told_s(error, now)
        if told is None:
            return backoff * (1 - self.jitter * chance)
        return told + backoff * self.jitter * chance if told <= self.max_retry_after_s else None


def falls_back(error: LLMError, on: tuple[type[LLMError], ...] = FALLBACK_ON) -> bool:
    """Return whether another model may be asked. After a tool call, none may."""
    return isinstance(error, on) and not error.side_effects


def _told_s(error: LLMError, now: datetime) -> float | None:
    """Return the backend's own waiting time: its seconds, or the end of its limit."""
    if error.retry_after_s is not None:
        return max(error.retry_after_s, 0.0)
    try:
        return max((datetime.fromisoformat(str(error.data.get("resets_at"))) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Retry:
    """Repetition with the same model after `delay_s`. `attempt` is the failed one, from 1."""

    model: str
    attempt: int
    delay_s: float
    error: LLMError


@dataclass(frozen=True, slots=True)
class Fallback:
    """Change to another model, with the conversation."""

    model: str
    to: str
    error: LLMError


OnRetry = Callable[[Retry], Awaitable[None] | None]
OnFallback = Callable[[Fallback], Awaitable[None] | None]


_ENDED = ("session_closed", "session_not_found")
"""Kinds of errors of a session that another client has ended."""

_KEEPS = (InvalidRequest, DaemonUnavailable)
"""Failures after which a turn still waits for the results of its tool calls."""


class ModelChain(ModelCalls):
    """Model of several models, for `clisup.llm.Client` and registered names."""

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
            raise usage_error(
                f"retry={retry!r:.100} is not a RetryPolicy", "give RetryPolicy(attempts=1) for no repetition"
            )
        self.retry = retry or RetryPolicy()
        self.on_retry, self.on_fallback, self.fallback_on = on_retry, on_fallback, fallback_on

    def __repr__(self) -> str:
        return f"Client({', '.join(map(_name, self.models))})"

    async def end_sessions(self, labels: Mapping[str, str]) -> int:
        """End sessions as `Model.end_sessions`, at the daemons of all models."""
        ends = [getattr(model, "end_sessions", None) for model in self.models]
        return sum([await end(labels) for end in ends if end is not None])

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        async with open_plain_nursery() as nursery:
            chat = ClientChat(self, options, nursery)
            await chat.open()
            yield chat


class ClientChat:
    """Chat of a `Client`. `messages` is the conversation so far."""

    def __init__(self, client: ModelChain, options: ChatOptions, nursery: trio.Nursery) -> None:
        self._client, self._options, self._nursery = client, options, nursery
        self.messages: tuple[Message, ...] = tuple(options.history)
        self._place = 0
        self._held: HeldChat | None = None

    @property
    def model(self) -> ModelName:
        """The model that answers now."""
        return self._held_chat.value.model

    @property
    def session_id(self) -> str | None:
        """The session that answers now."""
        return self._held_chat.value.session_id

    def park(self) -> None:
        """Keep a turn that waits for results beyond this chat."""
        if self._held is not None and (park := getattr(self._held.value, "park", None)) is not None:
            park()

    async def note(self, code: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Write a notice into the journal of the session that answers now, if there is one."""
        if (note := getattr(self._held_chat.value, "note", None)) is not None:
            await note(code, message, data)

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """Return the events of one answer. `Retracted(all=True)` marks another try, `Waiting` a pause."""
        return EventStream(self._events(prompt, output_schema))

    async def open(self) -> None:
        """Open a chat of the first working model."""
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
                    self._leave()  # no turn waits for these results any more
                plan = self._plan(error, attempt)
            if given:
                yield Retracted(f"another try, after {plan.error.kind}", all=True)
                given = False
            if isinstance(plan, Retry):
                yield Waiting(f"retry: {plan.error.kind}", plan.delay_s)
            attempt = await self._carry_out(plan)

    def _plan(self, error: LLMError, attempt: int) -> Retry | Fallback:
        """Return the reaction to a failure. Raises the failure if there is none."""
        client, model = self._client, self._client.models[self._place]
        delay_s = client.retry.delay_s(error, attempt, chance=random.random(), now=datetime.now(UTC))
        if delay_s is not None:
            return Retry(_name(model), attempt, delay_s, error)
        if self._place + 1 < len(client.models) and falls_back(error, client.fallback_on):
            return Fallback(_name(model), _name(client.models[self._place + 1]), error)
        raise error

    async def _carry_out(self, plan: Retry | Fallback) -> int:
        """Carry the reaction out, and return the number of the next attempt."""
        if isinstance(plan, Retry):
            await _tell(self._client.on_retry, plan)
            await trio.sleep(plan.delay_s)
            return plan.attempt + 1
        await _tell(self._client.on_fallback, plan)
        self._place += 1
        self._leave()
        return 1

    def _leave(self) -> None:
        """Leave the chat. The next prompt opens another one with the whole conversation."""
        if self._held is not None:
            self._held.leave()
            self._held = None

    # -- the chat that answers

    @property
    def _held_chat(self) -> HeldChat:
        if self._held is None:
            raise RuntimeError("no model answers now: the last one failed, and the next prompt asks another one")
        return self._held

    def _history(self, prompt: Prompt | None) -> tuple[tuple[Message, ...], Prompt | None]:
        """Return a history that every backend takes, and the next prompt. The caller's own history stays unchanged.

        Some CLIs reuse the ids of calls in each turn, and an answer may end without a text.
        """
        if len(self.messages) == len(self._options.history):
            return self.messages, prompt
        if prompt is not None and open_round(self.messages) is not None:
            *before, said = valid_history((*self.messages, *as_messages(prompt)))
            return tuple(before), said
        last = self.messages[-1]
        ended = last.role == "assistant" and last.text
        return valid_history(self.messages if ended else (*self.messages, Message.assistant(NO_ANSWER))), prompt

    async def _chat(self, prompt: Prompt | None) -> tuple[Chat, Prompt]:
        """Return the open chat and its prompt. Open a chat with the whole conversation if there is none."""
        said = prompt
        if self._held is None or self._held.left:
            self._held = None
            history, said = self._history(prompt)
            options = replace(self._options, history=history)
            self._held = await HeldChat(self._client.models[self._place], options).enter(self._nursery)
        return self._held.value, "" if said is None else said


def _waits(model: LanguageModel, options: ChatOptions) -> bool:
    """Return whether a parked chat of this model waits for the next results."""
    waits = getattr(model, "has_parked", None)
    return waits is not None and bool(waits(options))


async def _tell(whom: Callable[[Any], Awaitable[None] | None] | None, what: Retry | Fallback) -> None:
    if whom is not None and inspect.isawaitable(told := whom(what)):
        await told


def _name(model: LanguageModel) -> str:
    return str(getattr(model, "name", type(model).__name__))
