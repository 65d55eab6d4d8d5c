"""Chat over a session of the daemon: prompts in, `StreamEvent`s out, and nothing left behind.

The end of the chat's block closes and deletes the session (unless `keep`), and so ends the running turn. A turn outlives a
restart of the daemon. The stream then continues at the same place, each event once.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
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
from clisup.llm.answers import Finished, ModelName, StreamEvent
from clisup.llm.chat import ChatOptions
from clisup.llm.failures import DaemonUnavailable, Failed, InvalidRequest, LLMError, as_llm_errors, error_of_refusal
from clisup.llm.histories import GO_ON, OpenRound, last_said, open_round, results_in, seeded
from clisup.llm.messages import Message, Prompt, ToolResultBlock, one_message
from clisup.llm.registry import near_names
from clisup.llm.serving import RunCall, runner, serve_calls, tool_to_wire
from clisup.llm.sessions.caller_tools import PARKED, CallerCalls, ParkedChat, ParkedKey, StoppedTurn
from clisup.llm.sessions.opening import Opening, directory, opening_of, prompt_to_wire
from clisup.llm.sessions.turn_reader import TurnReader, whole
from clisup.llm.streams import CLOSING_S, EventStream
from clisup.llm.tools import definitions_of

CLIENT_NAME = "clisup-llm"
"""Name of this client in the daemon's log and in `actor` fields."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of sessions: the daemon's socket, whether to keep sessions, and the reaction of a prompt to a limited account."""

    socket: str | None = None
    keep: bool = False
    when_limited: Literal["wait", "refuse"] = "refuse"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Chat to open: model, options and settings. `stopped` is the place where the history stops at open calls."""

    name: ModelName
    options: ChatOptions
    settings: SessionSettings

    @property
    def stopped(self) -> OpenRound | None:
        return open_round(self.options.history)

    @property
    def key(self) -> ParkedKey:
        return ParkedKey(self.name, self.settings.socket, directory(self.options.cwd), self.options.system)


@asynccontextmanager
async def open_chat(request: ChatRequest) -> AsyncIterator[SessionChat]:
    """Open a chat in a new session, or in the parked session that waits for the caller's results.

    Raises `LLMError`s for refusals of the daemon, and without a daemon.
    """
    async with AsyncExitStack() as stack:
        with as_llm_errors():
            client = await stack.enter_async_context(open_client(request.settings.socket, name=CLIENT_NAME))
            chat = await _parked_chat(client, request, stack)
            if chat is None:
                chat = await _new_chat(client, request, stack)
        yield chat


def has_parked(request: ChatRequest) -> bool:
    """Return whether a parked chat of this model waits for results of the calls at the end of the history."""
    stopped = request.stopped
    return stopped is not None and PARKED.find(request.key, stopped) is not None


async def _new_chat(client: AsyncClient, request: ChatRequest, stack: AsyncExitStack) -> SessionChat:
    opening = await opening_of(client, request.name, request.options)
    chat = SessionChat(client, opening, request)
    stack.push_async_callback(chat.leave)  # before opening: a cancelled opening may have made the session
    try:
        await chat.open()
    except ClisupError as error:
        raise await _refusal(client, request.name, error) from error
    if "tools" in opening.params:
        await stack.enter_async_context(_served(client, chat))
    return chat


async def _refusal(client: AsyncClient, name: ModelName, error: ClisupError) -> LLMError:
    """Return the refusal as an `LLMError`. For an unknown backend, the hint names backends of similar spelling."""
    failure = error_of_refusal(error)
    known = [info.name for info in await client.backends()] if error.kind == "backend_not_found" else []
    if known and (near := near_names(name.backend, known)):
        failure.hint = f"did you mean {' or '.join(map(repr, near))}?"
    return failure


async def _parked_chat(client: AsyncClient, request: ChatRequest, stack: AsyncExitStack) -> SessionChat | None:
    """Return the chat parked at the history's open calls. Return None without such a chat or with a closed session."""
    stopped = request.stopped
    parked = None if stopped is None else PARKED.take(request.key, stopped)
    if parked is None:
        return None
    chat = SessionChat.of_parked(client, parked, request)
    try:
        await stack.enter_async_context(_served(client, chat))
    except BaseException as error:
        if isinstance(error, LLMError) and error.kind in ("session_closed", "session_not_found"):
            return None
        chat.park()  # the caller still has the results, and the next call finds the chat again
        raise
    stack.push_async_callback(chat.leave)
    return chat


@asynccontextmanager
async def _served(client: AsyncClient, chat: SessionChat) -> AsyncIterator[None]:
    """Serve the chat's tools. A failure after the beginning has side effects: the model may have called tools."""
    served = False
    try:
        async with serve_calls(client, chat.session.id, chat.run_call):
            served = True
            yield
    except UsageError:
        raise  # the caller's own
    except ClisupError as error:
        failure = error_of_refusal(error)
        failure.side_effects = served
        raise failure from error


async def end_sessions(labels: Mapping[str, str], *, socket: str | None, keep: bool) -> int:
    """End the sessions of a dead program: close, and delete unless `keep`, all open sessions with these labels.

    Return the number of sessions. Raises `LLMError`s.
    """
    ended = 0
    with as_llm_errors():
        async with open_client(socket, name=CLIENT_NAME) as client:
            for found in await client.sessions(labels=dict(labels)):
                try:
                    await _end_session(client, found.session_id, keep=keep)
                except ClisupError as error:
                    if error.kind not in ("session_not_found", "session_closed"):
                        raise
                ended += 1
    return ended


async def _end_session(client: AsyncClient, session_id: str, *, keep: bool) -> None:
    session = client.attach(session_id)
    await session.close()
    if not keep:
        await session.delete()


class SessionChat:
    """Chat over a session, made by `open_chat`."""

    def __init__(self, client: AsyncClient, opening: Opening, request: ChatRequest) -> None:
        self.session = client.attach(opening.params["session_id"])
        self._client, self._opening, self._request = client, opening, request
        self._seed, self._system = opening.seed, opening.system
        self._calls: CallerCalls | None = None
        if opening.definitions and not opening.native:
            self._calls = CallerCalls(opening.definitions, tells_ends=opening.tells_ends)
        self._stopped = request.stopped  # the history's end at open calls
        self._turn: StoppedTurn | None = None  # a turn of the session waiting for results
        self._said = last_said(request.options.history)
        self._seq = 0  # of the last event
        self._parked = False
        self._current: weakref.ref[EventStream] | None = None
        self._unsure = False  # a cancelled opening may have made the session

    @classmethod
    def of_parked(cls, client: AsyncClient, parked: ParkedChat, request: ChatRequest) -> SessionChat:
        """Return the chat of a parked session, in the middle of its turn."""
        params, definitions = {"session_id": parked.session_id}, definitions_of(request.options.offered)
        chat = cls(client, Opening(parked.key.cwd, params, definitions, parked.tools), request)
        chat._calls, chat._turn = parked.calls, parked.turn
        return chat

    async def open(self) -> None:
        """Open the session. Raises `ClisupError`."""
        try:
            await self._open(self._client)
        except ClisupError:
            raise
        except BaseException:  # mostly a cancellation
            self._unsure = True
            raise

    async def _open(self, client: AsyncClient) -> None:
        await client.open(self.model.backend, self._opening.cwd, **self._opening.params)

    @property
    def model(self) -> ModelName:
        """Name of the model that opened the chat."""
        return self._request.name

    @property
    def session_id(self) -> str:
        """Session id of the daemon, for `clisup logs`."""
        return self.session.id

    @property
    def run_call(self) -> RunCall:
        """Function to answer the session's tool calls."""
        run = runner(self._opening.runnable)
        return run if self._calls is None else self._calls.serve(run)

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """Return the events of an answer. The next stream ends the turn of a stream that was not read to its end."""
        stream = EventStream(self._events(prompt, output_schema, self._current))
        self._current = weakref.ref(stream)
        return stream

    async def note(self, code: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Write a notice into the session's journal (`session/note`). `code` is `client.<name>`."""
        with as_llm_errors():
            await self.session.note(code, message, data=None if data is None else dict(data))

    def park(self) -> None:
        """Keep a turn that waits for results, for the next call. A chat without such a turn ends as usual."""
        if self._turn is None or self._calls is None or self._parked:
            return
        self._parked = True
        key, tools = self._request.key, self._opening.runnable
        PARKED.park(ParkedChat(key, self._said, self.session.id, self._turn, self._calls, tools, self.close))

    async def leave(self) -> None:
        """Close the session unless the chat is parked."""
        if not self._parked:
            await self.close()

    async def close(self) -> None:
        """End the session and its turn within `CLOSING_S`. A daemon that stays away ends the session by its own rules.

        After a cancelled opening, open by the same id first: the session then exists for certain.
        """

        async def close(client: AsyncClient) -> None:
            if self._unsure:
                await self._open(client)
            await _end_session(client, self.session.id, keep=self._request.settings.keep)

        await self._on_new_connection(close)

    async def _on_new_connection(self, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
        """Run the work on a new connection, shielded and bounded: after a cancellation the chat's connection has no reader.

        A restart of the daemon repeats the work. A refusal ends the work, because nothing is left to end.
        """
        with trio.move_on_after(CLOSING_S, shield=True):
            while True:
                try:
                    async with open_client(self._request.settings.socket, name=CLIENT_NAME) as client:
                        return await work(client)
                except ClisupError as error:
                    if not may_come_back(error):
                        return None
                await trio.sleep(RETRY_PAUSE_S)

    async def _events(
        self, prompt: Prompt, schema: Mapping[str, Any] | None, earlier: weakref.ref[EventStream] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        if earlier is not None and (left := earlier()) is not None:
            await left.aclose()
        message = one_message(
            prompt,
            "this chat has a conversation and takes no other one",
            "open a chat with the messages as its history",
        )
        stopped = self._turn
        said, asked = self._asked(message, schema)
        turn = self.session.run(said, **asked) if stopped is None else self._resumed(stopped)
        try:
            await _begin(turn)
            reader = self._reader(turn, stopped)
            with as_llm_errors():
                async with aclosing(self._read(turn, reader)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            self._seed, self._system = (), None  # only a finished turn keeps both for certain
                        yield event
        except (trio.Cancelled, GeneratorExit):
            if turn.result is None and self._turn is None:
                await self._interrupt(turn, said, asked)
            raise
        except LLMError as error:
            if turn.accepted is not None and turn.result is None:
                error.side_effects = True  # the turn continues: a repeated prompt would be a second prompt
                if not isinstance(error, DaemonUnavailable):
                    await self._interrupt(turn, said, asked)
                elif stopped is not None:
                    self._turn = replace(stopped, seq=self._seq)  # the same results continue there
            raise
        finally:
            turn.close()

    async def _read(self, turn: AsyncTurn, reader: TurnReader) -> AsyncGenerator[StreamEvent, None]:
        """Read events until the turn ends or waits for the caller."""
        at = ""
        while (envelope := await self._next(turn)) is not None:
            if isinstance(envelope.event, Gap):
                raise _gone(envelope.event)
            self._seq, at = envelope.seq, envelope.ts
            for event in reader.read(await whole(envelope, self.session.blob)):
                if isinstance(event, Finished) and (calls := event.completion.tool_calls):
                    self._stopped = OpenRound((), event.completion.messages, (), calls)
                yield event
        calls = () if turn.result is not None or self._calls is None else self._calls.due()
        if calls and self._calls is not None and turn.accepted is not None:
            self._calls.pause()
            for event in reader.pause(calls, at):
                if isinstance(event, Finished):
                    self._turn = StoppedTurn(turn.accepted, reader, self._seq, calls)
                yield event

    async def _next(self, turn: AsyncTurn) -> Envelope | None:
        """Return the next event, or None if the turn has ended or waits for the caller's results."""
        calls = self._calls
        if calls is None:
            return await anext(turn, None)
        while not calls.due():
            with trio.CancelScope(deadline=calls.deadline) as scope:
                calls.changed = scope.cancel
                return await anext(turn, None)
        return None

    def _reader(self, turn: AsyncTurn, stopped: StoppedTurn | None) -> TurnReader:
        if stopped is None:
            reader = TurnReader(self.model, self.session.id, turn.id, self._opening.wire_names)
            if self._calls is not None:
                self._calls.follow(reader)
            return reader
        return stopped.reader

    def _resumed(self, stopped: StoppedTurn) -> AsyncTurn:
        """Return the rest of a turn after its wait for results."""

        async def begin() -> tuple[Any, AsyncEvents]:
            return stopped.accepted, self.session.turn_events(stopped.seq)

        self._seq = stopped.seq
        turn = AsyncTurn(begin, self.session.interrupt)
        turn.accepted = stopped.accepted
        return turn

    async def _interrupt(self, turn: AsyncTurn, said: Any, asked: PromptOptions) -> None:
        """Interrupt a turn without a reader.

        If the daemon's answer to the prompt is missing, send the prompt again by its key. The key prevents a second run.
        """

        async def interrupt(client: AsyncClient) -> None:
            session = client.attach(self.session.id)
            accepted = turn.accepted or await session.prompt(said, wait=False, **asked)
            await session.interrupt(accepted.turn_id)

        await self._on_new_connection(interrupt)

    def _asked(self, message: Message, schema: Mapping[str, Any] | None) -> tuple[Any, PromptOptions]:
        """Return the prompt and its options on the wire. Results for a waiting turn go to their calls instead."""
        stopped = self._stopped
        waiting = self._turn.calls if self._turn is not None else stopped.waiting if stopped is not None else ()
        brought = stopped.brought if stopped is not None else ()
        results = results_in(message, waiting, brought)
        options: PromptOptions = {"key": new_key(), "when_limited": self._request.settings.when_limited}
        if self._turn is not None and self._calls is not None:
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
        if sampling := self._request.options.sampling:
            options["sampling"] = sampling.to_wire()
        if self._opening.native and self._opening.definitions:
            options["tools"] = [tool_to_wire(tool) for tool in self._opening.definitions]
        return prompt_to_wire(said, results=self._opening.native), options

    def _bring(self, turn: StoppedTurn, message: Message, results: dict[str, ToolResultBlock]) -> None:
        if any(not isinstance(block, ToolResultBlock) for block in message.content):
            raise InvalidRequest(
                "the prompt holds more than results, and the waiting CLI takes results only",
                hint="send the rest as the next prompt",
            )
        assert self._calls is not None
        turn.reader.bring(list(results.values()))
        self._calls.follow(turn.reader)
        self._calls.bring({call.id: results[call.id] for call in turn.calls})
        self._turn = self._stopped = None


async def _begin(turn: AsyncTurn) -> None:
    """Send the prompt. A daemon that goes away meanwhile may have received the prompt."""
    try:
        with as_llm_errors():
            await turn.begin()
    except DaemonUnavailable as error:
        error.side_effects = True
        raise


def _gone(gap: Gap) -> Failed:
    lost = f"events {gap.from_seq} to {gap.to_seq} of the session are gone ({gap.reason})"
    return Failed(lost, kind="storage_failed", side_effects=True)
