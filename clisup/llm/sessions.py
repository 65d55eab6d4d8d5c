"""A chat over a session of the daemon: prompts in, `StreamEvent`s out, and nothing left behind.

The session is closed and deleted at the end of the chat's block (but `keep`), which ends what still runs in it. A turn outlives
a restart of the daemon; a stream goes on where it was, each event once.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import trio

from clisup.client.aio import AsyncClient, open_client
from clisup.client.aio_session import AsyncEvents, AsyncTurn
from clisup.client.events import Envelope, Gap
from clisup.client.options import PromptOptions
from clisup.client.reconnect import RETRY_PAUSE_S, may_come_back, new_key
from clisup.errors import ClisupError, UsageError
from clisup.llm.caller_desk import CallerDesk
from clisup.llm.chat import ChatOptions, Finished, StreamEvent
from clisup.llm.failures import DaemonUnavailable, Failed, InvalidRequest, LLMError, error_of_refusal
from clisup.llm.messages import Message, Prompt, ToolResultBlock, as_messages
from clisup.llm.names import ModelName
from clisup.llm.opening import Opening, directory, opening_of
from clisup.llm.parking import PARKED, ParkedChat, Place, StoppedTurn
from clisup.llm.payloads import whole
from clisup.llm.reading import TurnReader
from clisup.llm.refusals import as_llm_errors
from clisup.llm.registry import near_names
from clisup.llm.rounds import GO_ON, OpenRound, last_said, open_round, results_in
from clisup.llm.seeding import seeded
from clisup.llm.serving import serving
from clisup.llm.streams import CLOSING_S, EventStream
from clisup.llm.tools import Tool, definitions_of
from clisup.llm.wire import definitions_to_wire, prompt_to_wire

__all__ = ["CLIENT_NAME", "SessionChat", "SessionSettings", "has_parked", "open_chat"]

CLIENT_NAME = "clisup-llm"
"""By which the daemon's log and `actor`s name us."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Where the daemon is, what becomes of the session at the end, and what a prompt does while the account is limited."""

    socket: str | None = None
    keep: bool = False
    when_limited: Literal["wait", "refuse"] = "refuse"


@asynccontextmanager
async def open_chat(name: ModelName, options: ChatOptions, settings: SessionSettings) -> AsyncIterator[SessionChat]:
    """A chat in a new session, or in the parked one that waits for the results which come next.

    Raises `LLMError`s for what the daemon refuses, and where there is none.
    """
    async with AsyncExitStack() as stack:
        with as_llm_errors():
            client = await stack.enter_async_context(open_client(settings.socket, name=CLIENT_NAME))
            chat = await _of_parked(client, name, options, settings, stack)
            if chat is None:
                chat = await _of_new(client, name, options, settings, stack)
        yield chat


def has_parked(name: ModelName, options: ChatOptions, settings: SessionSettings) -> bool:
    """Return whether a chat of this model waits for results of the calls at which the history stops."""
    stopped = open_round(options.history)
    return stopped is not None and PARKED.find(_place(name, options, settings), stopped) is not None


def _place(name: ModelName, options: ChatOptions, settings: SessionSettings) -> Place:
    return Place(name, settings.socket, directory(options.cwd), options.system)


async def _of_new(
    client: AsyncClient, name: ModelName, options: ChatOptions, settings: SessionSettings, stack: AsyncExitStack
) -> SessionChat:
    opening = await opening_of(client, name, options)
    chat = SessionChat(client, opening, name, settings, options)
    stack.push_async_callback(chat.leave)  # first: who is cancelled while it opens does not know whether it is
    try:
        await chat.open()
    except ClisupError as error:
        raise await _told(client, name, error) from error
    if "tools" in opening.params:
        await stack.enter_async_context(_served(client, chat.session.id, opening.runnable, chat.desk))
    return chat


async def _told(client: AsyncClient, name: ModelName, error: ClisupError) -> LLMError:
    """The refusal. For a backend that is not there it names those that are spelled nearly so."""
    failure = error_of_refusal(error)
    known = [info.name for info in await client.backends()] if error.kind == "backend_not_found" else []
    if known and (near := near_names(name.backend, known)):
        failure.hint = f"did you mean {' or '.join(map(repr, near))}?"
    return failure


async def _of_parked(
    client: AsyncClient, name: ModelName, options: ChatOptions, settings: SessionSettings, stack: AsyncExitStack
) -> SessionChat | None:
    """The chat that is parked at the calls at which the history stops. None where there is none, or its session is closed."""
    stopped = open_round(options.history)
    parked = None if stopped is None else PARKED.take(_place(name, options, settings), stopped)
    if parked is None or stopped is None:
        return None
    chat = SessionChat.of_parked(client, parked, name, settings, options)
    try:
        await stack.enter_async_context(_served(client, chat.session.id, parked.tools, chat.desk))
    except BaseException as error:
        if isinstance(error, LLMError) and error.kind in ("session_closed", "session_not_found"):
            return None
        chat.park()  # the results are the caller's still: the next call finds the chat again
        raise
    stack.push_async_callback(chat.leave)
    return chat


@asynccontextmanager
async def _served(
    client: AsyncClient, session_id: str, tools: Sequence[Tool], desk: CallerDesk | None
) -> AsyncIterator[None]:
    """`serving`, with what goes wrong between it and the daemon as an `LLMError`. Once it serves, tools may have been called."""
    served = False
    try:
        async with serving(client, session_id, tools, desk=desk):
            served = True
            yield
    except UsageError:
        raise  # the caller's own
    except ClisupError as error:
        failure = error_of_refusal(error)
        failure.side_effects = served
        raise failure from error


class SessionChat:
    """Made by `open_chat`."""

    def __init__(
        self, client: AsyncClient, opening: Opening, name: ModelName, settings: SessionSettings, options: ChatOptions
    ) -> None:
        """`options` are those that the opening was planned by."""
        self.session = client.attach(opening.params["session_id"])
        self._client, self._opening = client, opening
        self._name, self._settings, self._options = name, settings, options
        self._seed, self._system = opening.seed, opening.system
        self.desk: CallerDesk | None = None
        if opening.definitions and not opening.native:
            self.desk = CallerDesk(opening.definitions, tells_ends=opening.tells_ends)
        self._stopped = opening.stopped  # where what was said before stops at open calls
        self._turn: StoppedTurn | None = None  # a turn of the session that waits for results
        self._said = last_said(options.history)
        self._seq = 0  # of the last event that was read
        self._parked = False
        self._current: weakref.ref[EventStream] | None = None
        self._unsure = False  # is it there? nobody waited for the answer

    @classmethod
    def of_parked(
        cls, client: AsyncClient, parked: ParkedChat, name: ModelName, settings: SessionSettings, options: ChatOptions
    ) -> SessionChat:
        """The chat of a session that is there, in the middle of its turn."""
        definitions = definitions_of(options.offered)
        params = {"session_id": parked.session_id}
        stopped = open_round(options.history)
        opening = Opening(
            name.backend, parked.place.cwd, params, (), None, definitions, parked.tools, False, True, stopped
        )
        chat = cls(client, opening, name, settings, options)
        chat.desk, chat._turn = parked.desk, parked.turn
        return chat

    async def open(self) -> None:
        """Open the session. Raises `ClisupError`."""
        try:
            await self._open(self._client)
        except ClisupError:
            raise
        except BaseException:  # cancelled, mostly
            self._unsure = True
            raise

    async def _open(self, client: AsyncClient) -> None:
        await client.open(self._opening.backend, self._opening.cwd, **self._opening.params)

    @property
    def model(self) -> ModelName:
        """The name that it was opened with."""
        return self._name

    @property
    def session_id(self) -> str:
        """The daemon's session: `clisup logs` takes it."""
        return self.session.id

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """The events of one answer. Beginning the next stream ends the turn of one that was not read to its end."""
        stream = EventStream(self._events(prompt, output_schema, self._current))
        self._current = weakref.ref(stream)
        return stream

    async def note(self, code: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Write a notice of the caller's own into the session's journal (`session/note`); `code` is `client.<name>`."""
        with as_llm_errors():
            await self.session.note(code, message, data=None if data is None else dict(data))

    def park(self) -> None:
        """Leave a turn that waits for results as it is, for the next call that brings them. Without one, the chat ends as any."""
        if self._turn is None or self.desk is None or self._parked:
            return
        self._parked = True
        place = _place(self._name, self._options, self._settings)
        tools = self._opening.runnable
        PARKED.park(ParkedChat(place, self._said, self.session.id, self._turn, self.desk, tools, self.close))

    async def leave(self) -> None:
        """End the chat: its session is closed, unless it is parked."""
        if not self._parked:
            await self.close()

    async def close(self) -> None:
        """End the session, and what runs in it; bounded by `CLOSING_S`. A daemon that stays away ends it by its own rules.

        Whose opening was cancelled may be in the making: it is asked for by its id again, and is there then.
        """

        async def close(client: AsyncClient) -> None:
            if self._unsure:
                await self._open(client)
            session = client.attach(self.session.id)
            await session.close()
            if not self._settings.keep:
                await session.delete()

        await self._at_last(close)

    async def _at_last(self, what: Callable[[AsyncClient], Awaitable[None]]) -> None:
        """Do it on a connection of its own, shielded and bounded: who is cancelled has no other that is read any longer.

        It is begun anew when the daemon is restarting. A refusal is the end of it: there is nothing left to end.
        """
        with trio.move_on_after(CLOSING_S, shield=True):
            while True:
                try:
                    async with open_client(self._settings.socket, name=CLIENT_NAME) as client:
                        return await what(client)
                except ClisupError as error:
                    if not may_come_back(error):
                        return None
                await trio.sleep(RETRY_PAUSE_S)

    async def _events(
        self, prompt: Prompt, schema: Mapping[str, Any] | None, earlier: weakref.ref[EventStream] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        if earlier is not None and (left := earlier()) is not None:
            await left.aclose()
        message = _one_message(prompt)
        going_on = self._turn
        said, asked = self._asked(message, schema)
        turn = self.session.run(said, **asked) if going_on is None else self._resumed(going_on)
        try:
            await _begin(turn)
            reader = self._reader(turn, going_on)
            with as_llm_errors():
                async with aclosing(self._read(turn, reader)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            self._seed, self._system = (), None  # the CLI has them: till now it may have forgotten all
                        yield event
        except (trio.Cancelled, GeneratorExit):
            if turn.result is None and self._turn is None:
                await self._interrupt(turn, said, asked)
            raise
        except LLMError as error:
            if turn.accepted is not None and turn.result is None:
                error.side_effects = True  # it goes on: the same prompt again would be a second one
                if not isinstance(error, DaemonUnavailable):
                    await self._interrupt(turn, said, asked)
                elif going_on is not None:
                    self._turn = replace(going_on, seq=self._seq)  # the same results go on where it was
            raise
        finally:
            turn.close()

    async def _read(self, turn: AsyncTurn, reader: TurnReader) -> AsyncGenerator[StreamEvent, None]:
        """The events of the turn, until it ends or waits for the caller."""
        at = ""
        while (envelope := await self._next(turn)) is not None:
            if isinstance(envelope.event, Gap):
                raise _gone(envelope.event)
            self._seq, at = envelope.seq, envelope.ts
            for event in reader.read(await whole(envelope, self.session.blob)):
                if isinstance(event, Finished) and (calls := event.completion.tool_calls):
                    self._stopped = OpenRound((), event.completion.messages, (), calls)
                yield event
        calls = () if turn.result is not None or self.desk is None else self.desk.due()
        if calls and self.desk is not None and turn.accepted is not None:
            self.desk.pause()
            for event in reader.pause(calls, at):
                if isinstance(event, Finished):
                    self._turn = StoppedTurn(turn.accepted, reader, self._seq, calls)
                yield event

    async def _next(self, turn: AsyncTurn) -> Envelope | None:
        """The next event; None at the end of the turn, and where it waits for the caller's results."""
        desk = self.desk
        if desk is None:
            return await anext(turn, None)
        while not desk.due():
            with trio.CancelScope(deadline=desk.deadline) as scope:
                desk.changed = scope.cancel
                return await anext(turn, None)
        return None

    def _reader(self, turn: AsyncTurn, going_on: StoppedTurn | None) -> TurnReader:
        if going_on is None:
            reader = TurnReader(self._name, self.session.id, turn.id, self._opening.wire_names)
            if self.desk is not None:
                self.desk.follow(reader)
            return reader
        return going_on.reader

    def _resumed(self, stopped: StoppedTurn) -> AsyncTurn:
        """The rest of a turn that has waited for results."""

        async def begin() -> tuple[Any, AsyncEvents]:
            return stopped.accepted, self.session.turn_events(stopped.seq)

        self._seq = stopped.seq
        turn = AsyncTurn(begin, self.session.interrupt)
        turn.accepted = stopped.accepted
        return turn

    async def _interrupt(self, turn: AsyncTurn, said: Any, asked: PromptOptions) -> None:
        """End a turn that nobody reads any longer. Where it is not known whether its prompt was heard, it is asked for by its
        key: then it is known, and never runs twice.
        """

        async def interrupt(client: AsyncClient) -> None:
            session = client.attach(self.session.id)
            accepted = turn.accepted or await session.prompt(said, wait=False, **asked)
            await session.interrupt(accepted.turn_id)

        await self._at_last(interrupt)

    def _asked(self, message: Message, schema: Mapping[str, Any] | None) -> tuple[Any, PromptOptions]:
        """The prompt and its options as the wire takes them. Results for a turn that waits go to their calls instead."""
        stopped = self._stopped
        waiting = self._turn.calls if self._turn is not None else stopped.waiting if stopped is not None else ()
        brought = stopped.brought if stopped is not None else ()
        results = results_in(message, waiting, brought)
        options: PromptOptions = {"key": new_key(), "when_limited": self._settings.when_limited}
        if self._turn is not None and self.desk is not None:
            self._bring(self._turn, message, results)
            return "", options
        if results and (self._seed or not self._opening.native):
            said = seeded((*self._seed, message), Message.user(GO_ON), system=self._system)
        else:
            said = seeded(self._seed, Message(role="user", content=(*brought, *message.content)), system=self._system)
        if not results:
            self._said = message.text
        self._stopped = None
        if schema:
            options["output_schema"] = schema
        if self._options.sampling:
            options["sampling"] = self._options.sampling.to_wire()
        if self._opening.native and self._opening.definitions:
            options["tools"] = definitions_to_wire(self._opening.definitions)
        return prompt_to_wire(said, results=self._opening.native), options

    def _bring(self, turn: StoppedTurn, message: Message, results: dict[str, ToolResultBlock]) -> None:
        if any(not isinstance(block, ToolResultBlock) for block in message.content):
            raise InvalidRequest(
                "the prompt has more than results, and the CLI that waits for them takes nothing beside them",
                kind="invalid_request",
                hint="send the rest as the next prompt",
            )
        assert self.desk is not None
        turn.reader.bring(list(results.values()))
        self.desk.follow(turn.reader)
        self.desk.bring({call.id: results[call.id] for call in turn.calls})
        self._turn = self._stopped = None


def _one_message(prompt: Prompt) -> Message:
    messages = as_messages(prompt)
    if len(messages) > 1:
        raise InvalidRequest(
            "cannot prompt with a conversation, because this chat has one",
            kind="invalid_request",
            hint="open a chat with it as the history",
        )
    return messages[0]


async def _begin(turn: AsyncTurn) -> None:
    """Send the prompt. A daemon that goes away for good in between may have heard it."""
    try:
        with as_llm_errors():
            await turn.begin()
    except DaemonUnavailable as error:
        error.side_effects = True
        raise


def _gone(gap: Gap) -> Failed:
    return Failed(
        f"events {gap.from_seq} to {gap.to_seq} of the session are gone ({gap.reason})", kind="storage_failed", side_effects=True
    )  # fmt: skip
