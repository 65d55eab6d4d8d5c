"""A conversation with a model. It keeps every turn as nodes, and policies edit the model's view before each prompt.

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
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.llm.answers import Completion, Cost, Finished, StreamEvent, sum_of_known
from clisup.llm.budget import Budget, Reservation
from clisup.llm.chat import ChatOptions, LanguageModel, SessionBudget, labels_of
from clisup.llm.conversation.context import (
    WireFormat,
    context_of,
    estimate_tokens,
    history_and_results,
    joined,
    left_of,
    outline,
    to_wire_messages,
    waiting_calls,
)
from clisup.llm.conversation.nodes import AgentPolicy, Turn, edited, walk
from clisup.llm.conversation.policies import Policy, TokenBudget, default_policies
from clisup.llm.conversation.saved import SavedConversation, begun_conversation
from clisup.llm.conversation.turn_builder import TurnBuilder
from clisup.llm.failures import BudgetExhausted, ContextOverflow, InvalidRequest, LLMError, StructureError
from clisup.llm.histories import results_in
from clisup.llm.memory import WorkingMemory
from clisup.llm.messages import Message, Prompt, ToolResultBlock, one_message
from clisup.llm.models import as_model
from clisup.llm.streams import CLOSING_S, EventStream, HeldChat
from clisup.llm.tools import AnyTool, as_tools
from clisup.model.usage import Usage


class Conversation:
    """Conversation in an `async with` block. `turns` are all turns, the oldest first, also after the block.

    `model` is a `LanguageModel` or a name for `resolve`. Before each prompt the `policies` edit the turns, in order: by default
    `default_policies()`, with `()` none. If the edited messages differ from the chat's, a new chat begins with them as its history.
    A failed or abandoned turn has the same effect. A backend with the capability `history` gets these messages, others their text.

    `memory` adds the tool `memory`, and its keys to the system prompt. `agents` are policies of sub-agents, by kind (claude's
    `subagent_type`) or name of the calling tool. `budget` limits the whole conversation: a `Budget` of the program, or a
    `SessionBudget` whose rest the daemon applies to each session.

    With a `path`, the turns come from this file if it exists, and go to it after each turn. `history` are earlier messages or turns,
    and excludes an existing file.
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
        self._awaiting = False  # a task waits for an event
        self._idle = trio.Event()
        self._idle.set()
        self.chats_opened = 0
        """Number of chats: one, and one more for each edit of the context and each turn that did not complete."""

    async def __aenter__(self) -> Self:
        if self._scope is not None:
            raise InvalidRequest("the conversation's block has begun already")
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

    # -- turns

    async def send(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> Turn:
        """Send a prompt and return the whole turn.

        Raises `LLMError`s. The turn is then in `turns` as far as it came. Without a rest of the budget, `BudgetExhausted` comes first.
        """
        async with self.stream(prompt, output_schema=output_schema) as stream:
            await stream.finish()
        return self._turns[-1]

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """Return the events of the answer. At `Finished`, the turn is in `turns` and saved.

        Leaving the stream interrupts the turn. The next stream ends an abandoned one. While another task waits for an event, a new
        stream raises `InvalidRequest`.
        """
        stream = EventStream(self._events(prompt, output_schema, self._current))
        self._current = weakref.ref(stream)
        return stream

    # -- reading and editing

    def __str__(self) -> str:
        """Return the nodes with their marks, a line each."""
        return outline(self._turns)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, with the marks of the last edit."""
        return self._turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the model sees, by the marks."""
        return context_of(self._turns)

    def to_wire_messages(self, format: WireFormat) -> list[JsonObject]:  # noqa: A002 - the word of the field
        """Return `messages` for an API: `"anthropic"` or `"openai"`."""
        return to_wire_messages(self._turns, format)

    @property
    def context_budget(self) -> int | None:
        """Limit of estimated tokens, or None without a `TokenBudget` among the policies."""
        return min((policy.limit for policy in self._policies if isinstance(policy, TokenBudget)), default=None)

    @property
    def context_tokens(self) -> int:
        """Estimated tokens before the next prompt: messages, system prompt, tools."""
        return estimate_tokens(self.messages, system=self._system(), tools=self._tools)

    @property
    def usage(self) -> Usage:
        """Known usage of all turns."""
        return sum((turn.usage for turn in self._turns), Usage())

    @property
    def cost(self) -> Cost | None:
        """Sum of all known costs, or None without any."""
        return sum_of_known(turn.cost for turn in self._turns)

    @property
    def session_id(self) -> str | None:
        """The conversation's present session in the daemon."""
        return None if self._held is None else self._held.value.session_id

    def edit(self, node_id: str, **changes: Any) -> None:
        """Change a node from the next prompt on: `edit(turn.calls[0].id, include_in_context=False)`, or its `summary`.

        Raises `InvalidRequest` for an unknown node or field.
        """
        self._turns = edited(self._turns, node_id, **changes)

    async def apply_policies(self, *, beside: int = 0) -> None:
        """Edit now instead of before the next prompt. `beside` are the tokens of that prompt."""
        beside += estimate_tokens((), system=self._system(), tools=self._tools)
        for policy in self._policies:
            turns = policy.edit(self._turns, beside=beside)
            self._turns = tuple(await turns if inspect.isawaitable(turns) else turns)

    # -- saving

    def to_json(self) -> str:
        """Return the whole conversation for `Conversation.from_json` and other programs (docs/llm/conversations.md)."""
        return self._saved().to_json()

    @classmethod
    def from_json(cls, text: str | bytes, model: LanguageModel | str, **options: Any) -> Conversation:
        """Continue a saved conversation. `options` are those of `Conversation`. Raises `UsageError` for other data."""
        saved = SavedConversation.from_json(text)
        conversation = cls(model, **{"system": saved.system, **options}, history=saved.turns)
        conversation.id, conversation._created_at = saved.id, saved.created_at
        return conversation

    async def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the file durably. The default path is the conversation's own. Raises `WorldError` (`storage_failed`)."""
        target = self.path if path is None else Path(path)
        if target is None:
            raise InvalidRequest("the conversation has no path", hint="give a path")
        await trio.to_thread.run_sync(self._saved().write, target)

    def _saved(self) -> SavedConversation:
        return SavedConversation(id=self.id, created_at=self._created_at, system=self.system, turns=self._turns)

    # -- one turn

    async def _events(
        self, prompt: Prompt, schema: Mapping[str, Any] | None, earlier: weakref.ref[EventStream] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        message = one_message(
            prompt,
            "the conversation has a history and takes one message at a time",
            "begin with the messages: Conversation(model, history=messages)",
        )
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
            history, said = history_and_results(self._turns, results)
            return await self._open_chat(history, call), said
        except BaseException:
            if call is not None and not asked:
                call.release()
            raise

    def _shortened(self, error: ContextOverflow) -> bool:
        """Halve a context that is too long for the model. Return whether the prompt can be sent again.

        A tool call forbids a second prompt, and without policies nothing is edited.
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
        events = held.value.stream(prompt, output_schema=schema)
        held.context = None  # unknown until the turn's end
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
        turn = builder.turn(ended_at=self._now(), error=error, session_id=held.value.session_id)
        if not results:
            self._turns = (*self._turns, turn)
        elif not (isinstance(error, InvalidRequest) and not turn.steps):  # a refused prompt leaves the calls waiting
            self._turns = (*self._turns[:-1], joined(self._turns[-1], turn, {**builder.strays, **results}))

    async def _after_failure(self, events: AsyncIterator[StreamEvent]) -> None:
        with trio.move_on_after(2 * CLOSING_S, shield=True):
            if isinstance(events, EventStream):
                await events.aclose()
            try:
                await self._save_own()
            except ClisupError:
                pass  # the turn's own error is raised, and the next save includes this turn

    async def _save_own(self) -> None:
        if self.path is not None:
            await self.save()

    async def _ready(self, prompt: Message, call: Reservation | None) -> HeldChat:
        """Return a chat with exactly the edited messages."""
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
        self._held = await HeldChat(self._model, options).enter(self._nursery)
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
        """Wait for the end of an abandoned stream's turn, in a task of trio."""
        with trio.move_on_after(CLOSING_S):
            await self._idle.wait()
        if self._awaiting or not self._idle.is_set():  # another task was first
            raise _busy()

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _checked(budget: SessionBudget | Budget | None) -> SessionBudget | Budget | None:
    if budget is None or isinstance(budget, SessionBudget | Budget):
        return budget
    raise InvalidRequest(
        f"a value of type {type(budget).__name__} is not a budget of a conversation",
        hint="give Budget(usd=...), or SessionBudget(usd=...) for a limit of the daemon",
    )


def _outside() -> InvalidRequest:
    return InvalidRequest("the conversation's block has not begun", hint="async with Conversation(...)")


async def _next(events: AsyncIterator[StreamEvent], call: Reservation | None) -> StreamEvent | None:
    """Return the next event, or None at the end. Raises `BudgetExhausted` at the end of the budget's seconds."""
    wall_s = None if call is None else call.left.wall_s
    with trio.move_on_after(float("inf") if wall_s is None else wall_s):
        return await anext(events, None)
    raise BudgetExhausted(
        "the answer was cut short: the budget's seconds are over",
        hint="give more seconds, or ask for less",
        side_effects=True,
        which="wall_s",
    )


async def _end(stream: weakref.ref[EventStream] | None) -> None:
    """End the turn of an abandoned stream that still exists."""
    if stream is None or (left := stream()) is None:
        return
    try:
        await left.aclose()
    except RuntimeError:  # another task reads the stream
        raise _busy() from None


def _no_value(answer: Completion) -> StructureError:
    return StructureError(
        "the model answered in words instead of a value",
        text=answer.text,
        problems=("there is no value in the answer",),
        hint="ask for the value again: the turn is in the conversation",
        side_effects=any(message.tool_uses for message in answer.messages),
    )


def _busy() -> InvalidRequest:
    return InvalidRequest(
        "another task of the conversation waits for an answer",
        hint="open several conversations for parallel prompts",
    )
