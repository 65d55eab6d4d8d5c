"""Models of the daemon's backends by name, and clients of several models, with retries and fallbacks.

model = resolve("claude/opus")
print((await model.complete("Say hello.")).text)
"""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import trio

from clisup.client.nurseries import open_plain_nursery
from clisup.llm.answers import Finished, ModelName, Retracted, StreamEvent, Waiting, parse_model
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel, Sampling, checked_model, labels_of
from clisup.llm.failures import DaemonUnavailable, InvalidRequest, LLMError, usage_error
from clisup.llm.fallbacks import FALLBACK_ON, Fallback, OnFallback, OnRetry, Retry, RetryPolicy, falls_back
from clisup.llm.histories import NO_ANSWER, open_round, valid_history
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.registry import chain_of
from clisup.llm.sessions.session_chat import ChatRequest, SessionSettings, end_sessions, has_parked, open_chat
from clisup.llm.streams import EventStream, HeldChat, stream_of


@dataclass(frozen=True, slots=True)
class Model(ModelCalls):
    """Model of a backend. Made by `resolve`. It holds no connection, so programs may share and keep it.

    Each chat is a session of its own. `defaults` fill options that a chat leaves out; labels and session params add up.
    `behind` is the model that answers for a registered name.
    """

    name: ModelName
    settings: SessionSettings = field(default_factory=SessionSettings)
    defaults: ChatOptions = field(default_factory=ChatOptions)
    behind: LanguageModel | None = None

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        merged = _merged(self.defaults, options)
        return (
            open_chat(ChatRequest(self.name, merged, self.settings))
            if self.behind is None
            else self.behind.chat(merged)
        )

    def has_parked(self, options: ChatOptions) -> bool:
        """Return whether a chat of this model waits for results of the tool calls at the end of the history."""
        request = ChatRequest(self.name, _merged(self.defaults, options), self.settings)
        return self.behind is None and has_parked(request)

    async def end_sessions(self, labels: Mapping[str, str]) -> int:
        """End the open sessions of a program that died, by labels, on any backend. Return their number."""
        if self.behind is not None:
            end = getattr(self.behind, "end_sessions", None)
            return 0 if end is None else int(await end(labels))
        return await end_sessions(labels, socket=self.settings.socket, keep=self.settings.keep)

    def __str__(self) -> str:
        return str(self.name)


def resolve(
    name: str | ModelName,
    *,
    socket: str | None = None,
    system: str | None = None,
    cwd: str | None = None,
    keep: bool = False,
    when_limited: Literal["wait", "refuse"] = "refuse",
    labels: Mapping[str, str] | None = None,
    sampling: Sampling | None = None,
    **session: Any,
) -> Model:
    """Return the model "backend/model", such as "claude/opus". A backend alone means its default model.

    The daemon is not asked yet. `socket` is the daemon's socket, if not the usual one. `cwd` is the CLI's directory; the default
    is the program's own. `keep=True` keeps sessions for `clisup logs`; the end of a chat deletes others.
    While the account is limited, `when_limited="wait"` waits, however long; "refuse" raises `RateLimited`.
    `session` are further params of `session/new` (docs/reference/protocol.md): `permission_mode`, `timeouts`, `mode` ...

    Names of `register` come first. A name of several models, or of a model of another kind, returns a `Model` that opens chats
    of those. Raises `UsageError` for a malformed name.
    """
    defaults = ChatOptions(system=system, cwd=cwd, labels=labels_of(labels), session=session, sampling=sampling)
    settings = SessionSettings(socket, keep, when_limited)
    chain = chain_of(name) if isinstance(name, str) else None
    if chain is None or (len(chain) == 1 and isinstance(chain[0], str)):
        return Model(parse_model(name if chain is None else chain[0]), settings, defaults)  # type: ignore[arg-type]
    models = [Model(parse_model(part), settings) if isinstance(part, str) else part for part in chain]
    return Model(
        ModelName(str(name)), settings, defaults, models[0] if len(models) == 1 else Client(models[0], models[1:])
    )


def as_model(model: LanguageModel | str) -> LanguageModel:
    """Return the model of this name, or the model itself. Raises `UsageError` for other values."""
    return resolve(model) if isinstance(model, str) else checked_model(model)


def models_of(model: LanguageModel | str) -> tuple[LanguageModel, ...]:
    """Return the model, or all models of a registered name."""
    chain = chain_of(model) if isinstance(model, str) else None
    return tuple(as_model(part) for part in chain) if chain is not None else (as_model(model),)


def _merged(defaults: ChatOptions, options: ChatOptions) -> ChatOptions:
    return replace(
        options,
        system=defaults.system if options.system is None else options.system,
        cwd=options.cwd or defaults.cwd,
        labels={**defaults.labels, **options.labels},
        session={**defaults.session, **options.session},
        sampling=defaults.sampling if options.sampling is None else options.sampling.over(defaults.sampling),
        cli_tools=options.cli_tools or defaults.cli_tools,
    )


class Client(ModelCalls):
    """Model with fallbacks. `primary` and `fallbacks` are names, or models of any kind.

        client = Client("claude/opus", fallbacks=["codex"], on_fallback=print)
        async with client.chat() as chat: ...

    Each chat begins with the primary model. If that model fails (`fallback_on`), the next one gets the whole conversation so far
    and keeps it until the end of the chat. `on_retry` and `on_fallback` are called before a retry or fallback, and may be async.
    After a tool call nothing is repeated. Raises the last model's error, and errors with `side_effects` at once.
    """

    def __init__(
        self,
        primary: str | LanguageModel,
        fallbacks: str | Sequence[str | LanguageModel] = (),
        *,
        retry: RetryPolicy | None = None,
        on_retry: OnRetry | None = None,
        on_fallback: OnFallback | None = None,
        fallback_on: tuple[type[LLMError], ...] = FALLBACK_ON,
    ) -> None:
        if not isinstance(retry, RetryPolicy | None):
            raise usage_error(
                f"retry={retry!r:.100} is not a RetryPolicy", "give RetryPolicy(attempts=1) for no repetition"
            )
        others = (fallbacks,) if isinstance(fallbacks, str) else fallbacks
        self.models = tuple(model for part in (primary, *others) for model in models_of(part))
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


_ENDED = ("session_closed", "session_not_found")
"""Kinds of errors of a session that another client has ended."""

_KEEPS = (InvalidRequest, DaemonUnavailable)
"""Failures after which a turn still waits for the results of its tool calls."""


class ClientChat:
    """Chat of a `Client`. `messages` is the conversation so far."""

    def __init__(self, client: Client, options: ChatOptions, nursery: trio.Nursery) -> None:
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
