"""A conversation with a model: every turn is kept as nodes, and policies edit what the model sees of them before each call.

async with Conversation(resolve("claude/opus"), path="chat.json") as conversation:
    turn = await conversation.send("What is in this directory?")
    print(turn.text, [call.name for call in turn.calls])
"""

from __future__ import annotations

import inspect
import os
import uuid
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trio

from clisup.client.nurseries import open_plain_nursery
from clisup.errors import ClisupError
from clisup.llm.budget import Budget, Reservation
from clisup.llm.chat import (
    ChatOptions,
    Completion,
    Cost,
    Finished,
    LanguageModel,
    SessionBudget,
    StreamEvent,
    labels_of,
)
from clisup.llm.conversation.allowance import left_of
from clisup.llm.conversation.building import TurnBuilder
from clisup.llm.conversation.context import context_of
from clisup.llm.conversation.going_on import going_on_with, joined, waiting_calls
from clisup.llm.conversation.nodes import AgentPolicy, Turn, edited, walk
from clisup.llm.conversation.outline import outline
from clisup.llm.conversation.policies import Policy, TokenBudget, default_policies
from clisup.llm.conversation.saving import SavedConversation, begun_conversation, write_conversation
from clisup.llm.conversation.tokens import estimate_tokens
from clisup.llm.conversation.wire import WireFormat, to_wire_messages
from clisup.llm.failures import BudgetExhausted, ContextOverflow, InvalidRequest, LLMError, StructureError
from clisup.llm.holding import HeldChat
from clisup.llm.memory import WorkingMemory
from clisup.llm.messages import Message, Prompt, ToolResultBlock, as_messages
from clisup.llm.models import as_model
from clisup.llm.rounds import results_in
from clisup.llm.streams import CLOSING_S, EventStream
from clisup.llm.tools import AnyTool, as_tools
from clisup.model.usage import Usage

__all__ = ["Conversation"]


class Conversation:
    """One conversation, in an `async with` block. `turns` are all that were had, oldest first; after the block they can still be read.

    `model` is any `LanguageModel`, or the name of one for `resolve`. Before each prompt the `policies` edit the turns, in their
    order; None: `default_policies()`, `()`: none. Where what the model is to see differs from what its chat has, a new chat is
    opened with the edited messages as its history; the same happens after a turn that failed or was left. On backends with
    the capability `history` the model gets exactly those messages, elsewhere their text.

    `memory` brings the tool `memory`, and its keys at the end of the system prompt. `agents` gives sub-agents a policy of their own,
    by kind (claude's `subagent_type`) or by the name of the tool that makes them. `budget` is for the whole conversation: a `Budget`
    of the program, or a `SessionBudget` that the daemon holds each session to what is left of.

    With a `path` the turns are read from this file where it is there, and written to it after each turn. Messages or turns in
    `history` are what was said before; they may not be given together with a file that is there.
    """

    def __init__(
        self,
        model: LanguageModel | str,
        *,
        system: str | None = None,
        tools: Sequence[AnyTool] = (),
        policies: Sequence[Policy] | None = None,
        memory: WorkingMemory | None = None,
        budget: SessionBudget | Budget | None = None,
        agents: Mapping[str, AgentPolicy] | None = None,
        history: Sequence[Message] | Sequence[Turn] = (),
        path: str | os.PathLike[str] | None = None,
        cwd: str | None = None,
        labels: Mapping[str, str] | None = None,
        session: Mapping[str, Any] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._model = as_model(model)
        self._memory, self._budget = memory, _checked(budget)
        self._tools = (*as_tools(tools), *(() if memory is None else (memory.tool(),)))
        self._policies: tuple[Policy, ...] = default_policies() if policies is None else tuple(policies)
        self._agents, self._clock = dict(agents or {}), clock
        self._cwd, self._labels, self._session = cwd, labels_of(labels), dict(session or {})
        self.path = None if path is None else Path(path)
        saved = begun_conversation(self.path, history, self._now())
        self.id, self._created_at, self._turns = saved.id, saved.created_at, saved.turns
        self.system = saved.system if system is None else system
        self._scope: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None
        self._held: HeldChat | None = None
        self._current: weakref.ref[EventStream] | None = None
        self._awaiting = False  # does a task wait for an event?
        self._idle = trio.Event()
        self._idle.set()
        self.chats_opened = 0
        """How many chats there were: one, and one more for each edit of the context and each turn that did not complete."""

    async def __aenter__(self) -> Self:
        if self._scope is not None:
            raise InvalidRequest("cannot enter a conversation twice", kind="invalid_request")
        self._scope = open_plain_nursery(cancel=False)
        self._nursery = await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope, self._scope, self._nursery = self._scope, None, None
        assert scope is not None
        try:
            if not self._awaiting:
                await _end(self._current)
        finally:
            held, self._held = self._held, None
            if held is not None:
                held.leave()
            await scope.__aexit__(kind, error, traceback)

    # -- talking

    async def send(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> Turn:
        """Say it, and wait for the whole turn. Raises `LLMError`s; the turn is then in `turns` as far as it came.

        Raises `BudgetExhausted` before anything is sent, where nothing is left of the budget.
        """
        async with self.stream(prompt, output_schema=output_schema) as stream:
            await stream.finish()
        return self._turns[-1]

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """The events of the answer. When `Finished` is given, the turn is in `turns`, and saved.

        To leave the stream ends the turn (`interrupted`). One stream at a time: to begin the next one ends one that was left, and is
        refused (`InvalidRequest`) while another task waits for an event of it.
        """
        stream = EventStream(self._events(prompt, output_schema, self._current))
        self._current = weakref.ref(stream)
        return stream

    # -- looking at it, and editing it by hand

    def __str__(self) -> str:
        """Its nodes, a line each, with their marks."""
        return outline(self._turns)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, with the marks of the last edit."""
        return self._turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model sees of the turns, by their marks now."""
        return context_of(self._turns)

    def to_wire_messages(self, format: WireFormat) -> list[dict[str, Any]]:  # noqa: A002 - the word of the field
        """`messages` as an API takes them: `"anthropic"` or `"openai"`."""
        return to_wire_messages(self._turns, format)

    @property
    def context_budget(self) -> int | None:
        """Tokens that the policies hold the conversation under, by their estimate; None where no `TokenBudget` is among them."""
        return min((policy.limit for policy in self._policies if isinstance(policy, TokenBudget)), default=None)

    @property
    def context_tokens(self) -> int:
        """An estimate of what is sent before the next prompt: messages, system prompt, tools."""
        return estimate_tokens(self.messages, system=self._system(), tools=self._tools)

    @property
    def usage(self) -> Usage:
        """Of all turns, as far as it is known."""
        return sum((turn.usage for turn in self._turns), Usage())

    @property
    def cost(self) -> Cost | None:
        """Of all turns whose cost is known; None where that is none of them."""
        known = [turn.cost for turn in self._turns if turn.cost is not None]
        return sum(known[1:], known[0]) if known else None

    @property
    def session_id(self) -> str | None:
        """The daemon's session that the conversation is in now."""
        return None if self._held is None else self._held.chat.session_id

    def edit(self, node_id: str, **changes: Any) -> None:
        """Change the marks of a node: `edit(turn.calls[0].id, include_in_context=False)`, or its `summary`. The next prompt has it so.

        Raises `InvalidRequest` where there is no such node or field.
        """
        self._turns = edited(self._turns, node_id, **changes)

    async def apply_policies(self, *, beside: int = 0) -> None:
        """Edit now, rather than before the next prompt, for which `beside` tokens are set aside."""
        beside += estimate_tokens((), system=self._system(), tools=self._tools)
        for policy in self._policies:
            turns = policy.edit(self._turns, beside=beside)
            self._turns = tuple(await turns if inspect.isawaitable(turns) else turns)

    # -- keeping it

    def to_json(self) -> str:
        """The whole conversation, for `Conversation.from_json` and other programs (docs/llm/conversations.md)."""
        return self._saved().to_json()

    @classmethod
    def from_json(cls, text: str | bytes, model: LanguageModel | str, **options: Any) -> Conversation:
        """Go on with a conversation that was saved. `options` are those of `Conversation`. Raises `UsageError` for what is none."""
        saved = SavedConversation.from_json(text)
        conversation = cls(model, **{"system": saved.system, **options}, history=saved.turns)
        conversation.id, conversation._created_at = saved.id, saved.created_at
        return conversation

    async def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the file, whole and durable; without a `path`, the conversation's own. Raises `WorldError` (`storage_failed`)."""
        target = self.path if path is None else Path(path)
        if target is None:
            raise InvalidRequest("cannot save a conversation without a path", kind="invalid_request", hint="give one")
        await trio.to_thread.run_sync(write_conversation, target, self._saved())

    def _saved(self) -> SavedConversation:
        return SavedConversation(id=self.id, created_at=self._created_at, system=self.system, turns=self._turns)

    # -- one turn

    async def _events(
        self, prompt: Prompt, schema: Mapping[str, Any] | None, earlier: weakref.ref[EventStream] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        message = _one_message(prompt)
        results = results_in(message, waiting_calls(self._turns))
        if self._awaiting:
            raise _busy()
        await _end(earlier)
        await self._wait_until_idle()
        self._idle, self._awaiting = trio.Event(), True
        try:
            with ExitStack() as stack:
                call = stack.enter_context(self._budget.reserve()) if isinstance(self._budget, Budget) else None
                again, asked = True, False
                while again:
                    held, said = await self._opened(message, results, call, asked)
                    again, asked = False, True
                    try:
                        async with aclosing(self._turn(held, said, results, schema, call)) as events:
                            async for event in events:
                                self._awaiting = False
                                yield event
                                self._awaiting = True
                    except ContextOverflow as error:
                        again = not results and self._shortened(error)
                        if not again:
                            raise
        finally:
            self._awaiting = False
            self._idle.set()

    async def _opened(
        self, prompt: Message, results: Mapping[str, ToolResultBlock], call: Reservation | None, asked: bool
    ) -> tuple[HeldChat, Message]:
        try:
            if not results:
                return await self._ready(prompt, call), prompt
            if self._held is not None and not self._held.left:
                return self._held, prompt
            history, said = going_on_with(self._turns, results)
            return await self._open_chat(history, call), said
        except BaseException:
            if call is not None and not asked:
                call.release()
            raise

    def _shortened(self, error: ContextOverflow) -> bool:
        """The model finds the context too long: make it half as long, so that the prompt can be sent once more. Can it be?

        Not where there are no policies (then nothing is edited), nor where a tool was called.
        """
        before = self.messages
        if error.side_effects or not self._policies:
            return False
        half = TokenBudget(limit=max(1, estimate_tokens(before) // 2), down_to=1.0, keep_turns=1)
        self._turns = half.edit(self._turns)
        return self.messages != before

    async def _turn(
        self,
        held: HeldChat,
        prompt: Message,
        results: Mapping[str, ToolResultBlock],
        schema: Mapping[str, Any] | None,
        call: Reservation | None,
    ) -> AsyncGenerator[StreamEvent, None]:
        taken = {node.id for node in walk(self._turns)}
        builder = TurnBuilder(prompt, id=uuid.uuid4().hex, at=self._now(), agents=self._agents, taken=taken)
        events = held.chat.stream(prompt, output_schema=schema)
        held.context = None  # until it is known how it ends
        done, error, in_words = False, None, None
        try:
            while (event := await _next(events, None if done else call)) is not None:
                builder.add(event)
                if isinstance(event, Finished):
                    done = True
                    if call is not None:
                        call.settle(event.completion)
                    self._record(builder, held, None, results)
                    held.context = None if event.completion.tool_calls else context_of(self._turns)
                    await self._save_own()
                    if schema is not None and event.completion.structured is None:
                        in_words = event.completion
                        continue
                yield event
            if in_words is not None:
                raise _no_value(in_words)
        except LLMError as failure:
            error = failure
            raise
        finally:
            if not done:
                self._record(builder, held, error, results)
                await self._after_failure(events)

    def _record(
        self, builder: TurnBuilder, held: HeldChat, error: LLMError | None, results: Mapping[str, ToolResultBlock]
    ) -> None:
        turn = builder.turn(ended_at=self._now(), error=error, session_id=held.chat.session_id)
        if not results:
            self._turns = (*self._turns, turn)
        elif not (isinstance(error, InvalidRequest) and not turn.steps):  # then the calls wait on
            self._turns = (*self._turns[:-1], joined(self._turns[-1], turn, {**builder.strays, **results}))

    async def _after_failure(self, events: AsyncIterator[StreamEvent]) -> None:
        with trio.move_on_after(2 * CLOSING_S, shield=True):
            if isinstance(events, EventStream):
                await events.aclose()
            try:
                await self._save_own()
            except ClisupError:
                pass  # what ended the turn is told; the next turn's save has this one, too, or raises

    async def _save_own(self) -> None:
        if self.path is not None:
            await self.save()

    async def _ready(self, prompt: Message, call: Reservation | None) -> HeldChat:
        """A chat that has exactly what the model is to see."""
        if self._nursery is None:
            raise _outside()
        await self.apply_policies(beside=estimate_tokens((prompt,)))
        wanted = context_of(self._turns)
        if self._held is not None and self._held.has(wanted):
            return self._held
        if self._held is not None:
            await self._held.close()
            self._held = None
        return await self._open_chat(wanted, call)

    async def _open_chat(self, history: tuple[Message, ...], call: Reservation | None) -> HeldChat:
        if self._nursery is None:
            raise _outside()
        options = ChatOptions(
            system=self._system(),
            history=history,
            tools=self._tools,
            budget=self._session_budget(call),
            cwd=self._cwd,
            labels=self._labels,
            session=self._session,
        )
        self._held = await HeldChat.open(self._nursery, self._model, options)
        self.chats_opened += 1
        return self._held

    def _session_budget(self, call: Reservation | None) -> SessionBudget | None:
        if call is not None:
            left = call.session_budget()
            return left if left.to_wire() else None
        return left_of(self._budget, self._turns) if isinstance(self._budget, SessionBudget) else None

    def _system(self) -> str | None:
        parts = [part for part in (self.system, None if self._memory is None else self._memory.brief()) if part]
        return "\n\n".join(parts) or None

    async def _wait_until_idle(self) -> None:
        """A stream that was left by `break` ends its turn in a task of trio's."""
        with trio.move_on_after(CLOSING_S):
            await self._idle.wait()
        if self._awaiting or not self._idle.is_set():  # or another task was first
            raise _busy()

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _checked(budget: SessionBudget | Budget | None) -> SessionBudget | Budget | None:
    """A budget that nobody knows would hold nothing, and say nothing of it."""
    if budget is None or isinstance(budget, SessionBudget | Budget):
        return budget
    raise InvalidRequest(
        f"cannot hold a conversation to a budget of type {type(budget).__name__}",
        kind="invalid_request",
        hint="give Budget(usd=...), or SessionBudget(usd=...) for the daemon to hold it",
    )


def _outside() -> InvalidRequest:
    return InvalidRequest(
        "cannot send to a conversation outside of its block",
        kind="invalid_request",
        hint="async with Conversation(...)",
    )


def _one_message(prompt: Prompt) -> Message:
    messages = as_messages(prompt)
    if len(messages) > 1:
        raise InvalidRequest(
            "cannot send several messages, because this conversation has its own history",
            kind="invalid_request",
            hint="begin one with them: Conversation(model, history=messages)",
        )
    return messages[0]


async def _next(events: AsyncIterator[StreamEvent], call: Reservation | None) -> StreamEvent | None:
    """The next event; None at the end. Raises `BudgetExhausted` where the budget's seconds are over before it comes."""
    wall_s = None if call is None else call.left.wall_s
    with trio.move_on_after(float("inf") if wall_s is None else wall_s):
        return await anext(events, None)
    raise BudgetExhausted(
        "the answer was cut short, because the budget's seconds are over",
        kind="budget_exhausted",
        hint="give it more seconds, or ask for less",
        side_effects=True,
        which="wall_s",
    )


async def _end(stream: weakref.ref[EventStream] | None) -> None:
    """End the turn of a stream that was left but is still known to somebody."""
    if stream is None or (left := stream()) is None:
        return
    try:
        await left.aclose()
    except RuntimeError:  # it is being read
        raise _busy() from None


def _no_value(answer: Completion) -> StructureError:
    return StructureError(
        "the model answered in words, and a value was asked for",
        text=answer.text,
        problems=("there is no value in the answer",),
        hint="the turn is in the conversation: ask for the value again",
        side_effects=any(message.tool_uses for message in answer.messages),
    )


def _busy() -> InvalidRequest:
    return InvalidRequest(
        "cannot send this, because another task of the conversation waits for an answer",
        kind="invalid_request",
        hint="one stream at a time; for several at once, open several conversations",
    )
