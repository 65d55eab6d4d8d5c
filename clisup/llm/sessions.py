"""A chat over a session of the daemon: prompts in, `StreamEvent`s out, and nothing left behind.

The session is closed and deleted at the end of the chat's block (but `keep`), which ends what still runs in it. A turn outlives
a restart of the daemon; a stream goes on where it was, each event once.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import trio

from clisup.client.aio import AsyncClient, open_client
from clisup.client.aio_event_stream import AsyncTurn
from clisup.client.coming_back import RETRY_PAUSE_S, may_come_back, new_key
from clisup.client.events import Gap
from clisup.client.options import PromptOptions
from clisup.errors import ClisupError, UsageError
from clisup.llm.chat import ChatOptions, Finished, StreamEvent
from clisup.llm.failures import DaemonUnavailable, Failed, InvalidRequest, LLMError, error_of_refusal
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.names import ModelName
from clisup.llm.payloads import whole
from clisup.llm.reading import TurnReader
from clisup.llm.refusals import as_llm_errors
from clisup.llm.seeding import seeded
from clisup.llm.serving import serving, to_wire
from clisup.llm.streams import CLOSING_S, EventStream
from clisup.llm.tools import Tool
from clisup.llm.wire import history_to_wire, prompt_to_wire

__all__ = ["CLIENT_NAME", "SessionChat", "SessionSettings", "open_chat"]

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
    """A chat in a new session. Raises `LLMError`s for what the daemon refuses, and where there is none."""
    async with AsyncExitStack() as stack:
        with as_llm_errors():
            client = await stack.enter_async_context(open_client(settings.socket, name=CLIENT_NAME))
            chat = await _planned(client, name, options, settings)
            stack.push_async_callback(chat.close)  # first: who is cancelled while it opens does not know whether it is
            await chat.open()
            if options.tools:
                await stack.enter_async_context(_served(client, chat.session.id, options.tools))
        yield chat


@asynccontextmanager
async def _served(client: AsyncClient, session_id: str, tools: Sequence[Tool]) -> AsyncIterator[None]:
    """`serving`, with what goes wrong between it and the daemon as an `LLMError`. Once it serves, tools may have been called."""
    served = False
    try:
        async with serving(client, session_id, tools):
            served = True
            yield
    except UsageError:
        raise  # the caller's own
    except ClisupError as error:
        failure = error_of_refusal(error)
        failure.side_effects = served
        raise failure from error


async def _planned(
    client: AsyncClient, name: ModelName, options: ChatOptions, settings: SessionSettings
) -> SessionChat:
    history = history_to_wire(options.history, {tool.name for tool in options.tools})
    can = await _capabilities(client, name.backend) if history or options.system else {}
    params: dict[str, Any] = {"session_id": new_key(), "model": name.model, "labels": dict(options.labels) or None}
    if options.system and can.get("system_prompt"):
        params["system_prompt"] = options.system
    if history and can.get("history"):
        params["history"] = history
    if options.tools:
        params["tools"] = to_wire(options.tools)
    if options.budget is not None:
        params["budget"] = options.budget.to_wire()
    params |= options.session
    opening = _Opening(name.backend, _directory(options.cwd), params)
    seed = () if "history" in params else tuple(options.history)
    return SessionChat(client, opening, name, settings, seed, None if "system_prompt" in params else options.system)


def _directory(cwd: str | None) -> str:
    """The daemon takes none that depends on where a program happens to be."""
    try:
        return os.path.abspath(cwd or ".")
    except FileNotFoundError:
        raise UsageError(
            "cannot tell the working directory, because it is gone", kind="usage", hint="give cwd=, an absolute path"
        ) from None


async def _capabilities(client: AsyncClient, backend: str) -> dict[str, Any]:
    """What the backend can do; nothing for one that is not there, which `session/new` then refuses in its own words."""
    return next((info.capabilities for info in await client.backends() if info.name == backend), {})


class _Opening(NamedTuple):
    backend: str
    cwd: str
    params: dict[str, Any]


class SessionChat:
    """Made by `open_chat`."""

    def __init__(
        self,
        client: AsyncClient,
        opening: _Opening,
        name: ModelName,
        settings: SessionSettings,
        seed: Sequence[Message] = (),
        system: str | None = None,
    ) -> None:
        """`seed` and `system` are what the backend itself did not take: they go before the first prompt."""
        self.session = client.attach(opening.params["session_id"])
        self._client, self._opening = client, opening
        self._name, self._settings = name, settings
        self._seed, self._system = tuple(seed), system
        self._current: weakref.ref[EventStream] | None = None
        self._unsure = False  # is it there? nobody waited for the answer

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
        said, asked = self._asked(prompt, schema)
        turn = self.session.run(said, **asked)
        try:
            await _begin(turn)
            reader = TurnReader(self._name, self.session.id, turn.id)
            with as_llm_errors():
                async for envelope in turn:
                    if isinstance(envelope.event, Gap):
                        raise _gone(envelope.event)
                    for event in reader.read(await whole(envelope, self.session.blob)):
                        if isinstance(event, Finished):
                            self._seed, self._system = (), None  # the CLI has them: till now it may have forgotten all
                        yield event
        except (trio.Cancelled, GeneratorExit):
            if turn.result is None:
                await self._interrupt(turn, said, asked)
            raise
        except LLMError as error:
            if turn.accepted is not None and turn.result is None:
                error.side_effects = True  # it goes on: the same prompt again would be a second one
                if not isinstance(error, DaemonUnavailable):
                    await self._interrupt(turn, said, asked)
            raise
        finally:
            turn.close()

    async def _interrupt(self, turn: AsyncTurn, said: Any, asked: PromptOptions) -> None:
        """End a turn that nobody reads any longer. Where it is not known whether its prompt was heard, it is asked for by its
        key: then it is known, and never runs twice.
        """

        async def interrupt(client: AsyncClient) -> None:
            session = client.attach(self.session.id)
            accepted = turn.accepted or await session.prompt(said, wait=False, **asked)
            await session.interrupt(accepted.turn_id)

        await self._at_last(interrupt)

    def _asked(self, prompt: Prompt, schema: Mapping[str, Any] | None) -> tuple[Any, PromptOptions]:
        """The prompt and its options as the wire takes them."""
        messages = as_messages(prompt)
        if len(messages) > 1:
            raise InvalidRequest(
                "cannot prompt with a conversation, because this chat has one", kind="invalid_request",
                hint="open a chat with it as the history",
            )  # fmt: skip
        said = seeded(self._seed, messages[0], system=self._system)
        options: PromptOptions = {"key": new_key(), "when_limited": self._settings.when_limited}
        if schema:
            options["output_schema"] = schema
        return prompt_to_wire(said), options


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
