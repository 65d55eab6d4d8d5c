"""Calls that every model has, made of its one method `chat`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Never, TypedDict, TypeVar, Unpack, overload

from clisup.llm.answers import Completion
from clisup.llm.chat import Chat, ChatOptions, Sampling, SessionBudget
from clisup.llm.failures import usage_error
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.shapes import Shape
from clisup.llm.streams import EventStream, stream_of
from clisup.llm.structured import REPAIRS, Structured, ask
from clisup.llm.tools import AnyTool

_T = TypeVar("_T")


class CallOptions(TypedDict, total=False):
    """Options of a single call: those of `ChatOptions`, and the five fields of `Sampling`.

    `history` comes before the messages of the prompt.
    """

    system: str | None
    history: Sequence[Message]
    tools: Sequence[AnyTool]
    budget: SessionBudget | None
    cwd: str | None
    labels: Mapping[str, str]
    session: Mapping[str, Any]
    cli_tools: Literal["none", "default"] | None
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop: str | Sequence[str] | None
    seed: int | None


_SAMPLED = frozenset(Sampling.model_fields)


class ModelCalls:
    """Calls of a `LanguageModel`. Each call is a chat of its own, for one prompt. Subclasses define `_chat`.

    A prompt is a text, a message of the user, blocks of text and images, or a whole conversation that ends with a message of the
    user. All calls raise `LLMError`s.
    """

    def chat(self, options: ChatOptions | None = None) -> AbstractAsyncContextManager[Chat]:
        """Open a chat that ends with the block. Raises `LLMError`s at its beginning."""
        if not isinstance(options, ChatOptions | None):
            raise usage_error(
                f"options of a chat are ChatOptions, not of type {type(options).__name__}", "give ChatOptions(...)"
            )
        return self._chat(options or ChatOptions())

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        raise NotImplementedError

    async def complete(self, prompt: Prompt | Iterable[Message], **options: Unpack[CallOptions]) -> Completion:
        """Return one whole answer."""
        async with self.stream(prompt, **options) as events:
            return await events.finish()

    def stream(self, prompt: Prompt | Iterable[Message], **options: Unpack[CallOptions]) -> StreamBlock:
        """Stream the events of one answer, within a block. Leaving the block early interrupts the turn.

        async with model.stream("Hi") as events:
            async for event in events: ...
        """
        said, opened = _opened(prompt, options)
        return StreamBlock(self._stream(said, opened))

    @asynccontextmanager
    async def _stream(self, said: Message, opened: ChatOptions) -> AsyncIterator[EventStream]:
        async with self.chat(opened) as chat:
            try:
                async with stream_of(chat, said) as events:
                    yield events
            finally:
                park = getattr(chat, "park", None)
                if park is not None:  # tool calls that wait for the caller's results outlive this call
                    park()

    @overload
    async def structured(
        self,
        prompt: Prompt | Iterable[Message],
        schema: type[_T],
        *,
        repairs: int = REPAIRS,
        **options: Unpack[CallOptions],
    ) -> Structured[_T]: ...
    @overload
    async def structured(
        self,
        prompt: Prompt | Iterable[Message],
        schema: Mapping[str, Any],
        *,
        repairs: int = REPAIRS,
        **options: Unpack[CallOptions],
    ) -> Structured[Any]: ...
    async def structured(
        self,
        prompt: Prompt | Iterable[Message],
        schema: type[Any] | Mapping[str, Any],
        *,
        repairs: int = REPAIRS,
        **options: Unpack[CallOptions],
    ) -> Structured[Any]:
        """Return a value that fits a pydantic model, another type that pydantic knows, or a JSON Schema.

        The backend's own structured output is used if there is one; else the prompt asks in words. A wrong answer goes back at
        most `repairs` times; then `StructureError` is raised. A CLI's own tools are left out if possible (`cli_tools="default"`
        keeps them).
        """
        said, opened = _opened(prompt, options)
        async with self.chat(opened.plain("answer with a value")) as chat:
            return await ask(chat, said, Shape.of(schema), repairs=repairs)


class StreamBlock:
    """Block of `ModelCalls.stream`. The block keeps the chat of the events open."""

    def __init__(self, block: AbstractAsyncContextManager[EventStream]) -> None:
        self._block = block

    async def __aenter__(self) -> EventStream:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Never:
        """Raise an error that explains the block. The stream of a chat needs none."""
        raise TypeError(
            "a model's stream needs its block: write `async with model.stream(...) as events:` and iterate over `events`"
        )


def _opened(prompt: Prompt | Iterable[Message], options: CallOptions) -> tuple[Message, ChatOptions]:
    """Return the prompt and the chat's options with the messages before it. Raises `UsageError` for an unknown option."""
    *before, said = as_messages(prompt)
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(given.keys() - CallOptions.__annotations__.keys()):
        raise usage_error(
            f"a call has no option {', '.join(unknown)}",
            f"options are {', '.join(CallOptions.__annotations__)}; session={{...}} takes params of session/new",
        )
    history = (*given.get("history", ()), *before)
    sampled = {name: given.pop(name) for name in _SAMPLED & given.keys()}
    if sampled:
        given["sampling"] = Sampling(**sampled)
    return said, ChatOptions(**{**given, "history": history})
