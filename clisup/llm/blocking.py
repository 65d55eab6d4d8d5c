"""The blocking twin: the same names for programs without trio.

    from clisup.llm import blocking

    model = blocking.resolve("claude/opus")
    print(model.complete("Say hello.").text)
    with model.chat() as chat:
        for event in chat.stream("Count to ten."): ...

All that is asynchronous runs in one thread of trio's (`clisup.llm.portal`), which starts with the first call and may be used from any
number of threads. Not for code that runs in trio itself: trio refuses it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Generic, Never, Self, TypeVar, Unpack, overload

from clisup.llm import client, models
from clisup.llm.calls import CallOptions, ModelCalls
from clisup.llm.chat import Chat, ChatOptions, Completion, StreamEvent
from clisup.llm.conversation.conversation import Conversation as AsyncConversation
from clisup.llm.conversation.nodes import Turn
from clisup.llm.messages import Message, Prompt
from clisup.llm.names import ModelName
from clisup.llm.portal import Held, the_portal
from clisup.llm.signatures import ChainOfThought as AsyncChainOfThought
from clisup.llm.signatures import Predict as AsyncPredict
from clisup.llm.signatures import Prediction, Signature
from clisup.llm.streams import EventStream, stream_of
from clisup.llm.structured import REPAIRS, Structured
from clisup.llm.workflow import Loop, WorkflowResult

__all__ = [
    "BlockingChat",
    "BlockingModel",
    "BlockingPredict",
    "BlockingStream",
    "ChainOfThought",
    "Client",
    "Conversation",
    "Predict",
    "resolve",
    "run_workflow",
]

T = TypeVar("T")
S = TypeVar("S", bound=Signature)


def resolve(name: str | ModelName, **options: Any) -> BlockingModel:
    """As `clisup.llm.resolve`."""
    return BlockingModel(models.resolve(name, **options))


def Client(primary: str | Any, fallbacks: str | Sequence[str | Any] = (), **options: Any) -> BlockingModel:  # noqa: N802  the twin's name
    """As `clisup.llm.Client`; models may be blocking ones, too."""
    others = fallbacks if isinstance(fallbacks, str) else [_async(model) for model in fallbacks]
    return BlockingModel(client.Client(_async(primary), others, **options))


def _async(model: Any) -> Any:
    return model.model if isinstance(model, BlockingModel) else model


class BlockingStream:
    """An iterator of `StreamEvent`s; `completion` is set once it has ended well. Leaving its `with` block early interrupts the turn."""

    def __init__(self, events: EventStream) -> None:
        self._events = events

    @property
    def completion(self) -> Completion | None:
        """The whole answer, once it is there."""
        return self._events.completion

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        event = the_portal().call(_next, self._events)
        if event is None:
            raise StopIteration
        return event

    def finish(self) -> Completion:
        """Take what is left of it, and give the completion."""
        return the_portal().call(self._events.finish)

    def close(self) -> None:
        """End it, and the turn with it where that still runs."""
        the_portal().call(self._events.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class BlockingStreamBlock:
    """What `BlockingModel.stream` gives: its `with` block holds the chat open that the events come from."""

    def __init__(self, block: AbstractContextManager[EventStream]) -> None:
        self._block = block

    def __enter__(self) -> BlockingStream:
        return BlockingStream(self._block.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, traceback)

    def __iter__(self) -> Never:
        """Only to say what is meant, as its asynchronous twin does."""
        raise TypeError(
            "cannot iterate over a model's stream without its block; write "
            "`with model.stream(...) as events:` and iterate over `events`"
        )


async def _next(events: EventStream) -> StreamEvent | None:
    return await anext(events, None)


class BlockingChat:
    """A chat of a `BlockingModel`."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    @property
    def model(self) -> ModelName:
        """Who answers now."""
        return self.chat.model

    @property
    def session_id(self) -> str | None:
        """The daemon's session, where there is one."""
        return self.chat.session_id

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> BlockingStream:
        """The events of one answer."""
        return BlockingStream(stream_of(self.chat, prompt, output_schema=output_schema))

    def complete(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> Completion:
        """One whole answer."""
        with self.stream(prompt, output_schema=output_schema) as events:
            return events.finish()


class BlockingModel:
    """Any model, for blocking code. `model` is the asynchronous one."""

    def __init__(self, model: ModelCalls) -> None:
        self.model = model

    def __str__(self) -> str:
        return str(self.model)

    def __repr__(self) -> str:
        return f"BlockingModel({self.model!r})"

    @contextmanager
    def chat(self, options: ChatOptions | None = None) -> Iterator[BlockingChat]:
        """A chat that ends with the block."""
        with entered(lambda: self.model.chat(options)) as chat:
            yield BlockingChat(chat)

    def complete(self, prompt: Prompt | Iterable[Message], **options: Unpack[CallOptions]) -> Completion:
        """One whole answer."""

        async def complete() -> Completion:
            return await self.model.complete(prompt, **options)

        return the_portal().call(complete)

    def stream(self, prompt: Prompt | Iterable[Message], **options: Unpack[CallOptions]) -> BlockingStreamBlock:
        """The events of one answer, within a block; leaving it early interrupts the turn."""
        return BlockingStreamBlock(entered(lambda: self.model.stream(prompt, **options)))

    @overload
    def structured(
        self,
        prompt: Prompt | Iterable[Message],
        schema: type[T],
        *,
        repairs: int = REPAIRS,
        **options: Unpack[CallOptions],
    ) -> Structured[T]: ...
    @overload
    def structured(
        self,
        prompt: Prompt | Iterable[Message],
        schema: Mapping[str, Any],
        *,
        repairs: int = REPAIRS,
        **options: Unpack[CallOptions],
    ) -> Structured[Any]: ...
    def structured(
        self,
        prompt: Prompt | Iterable[Message],
        schema: type[Any] | Mapping[str, Any],
        *,
        repairs: int = REPAIRS,
        **options: Unpack[CallOptions],
    ) -> Structured[Any]:
        """A value that fits a type or a JSON Schema."""

        async def structured() -> Structured[Any]:
            return await self.model.structured(prompt, schema, repairs=repairs, **options)

        return the_portal().call(structured)


class Conversation:
    """As `clisup.llm.Conversation`, in a `with` block. What only looks at it, or edits it, is at `conversation`."""

    def __init__(self, model: BlockingModel | Any, **options: Any) -> None:
        self.conversation = AsyncConversation(_async(model), **options)
        self._held: Held[Any] | None = None

    def __enter__(self) -> Self:
        self._held = the_portal().hold(self.conversation)
        return self

    def __exit__(self, *_exc: object) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def send(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> Turn:
        """Say it, and wait for the whole turn."""

        async def send() -> Turn:
            return await self.conversation.send(prompt, output_schema=output_schema)

        return the_portal().call(send)

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> BlockingStream:
        """The events of the answer. When `Finished` is given, the turn is in `turns`."""
        return BlockingStream(self.conversation.stream(prompt, output_schema=output_schema))

    def save(self, path: str | None = None) -> None:
        """Write the file; without a `path`, the conversation's own."""
        the_portal().call(self.conversation.save, path)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, with the marks of the last edit."""
        return self.conversation.turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model sees of the turns."""
        return self.conversation.messages


class BlockingPredict(Generic[S]):
    """A question of blocking code. `module` is the asynchronous one."""

    def __init__(self, module: AsyncPredict[S]) -> None:
        self.module = module

    def __call__(self, **inputs: Any) -> S:
        """The inputs and outputs, typed."""
        return self.run(**inputs).value

    def run(self, **inputs: Any) -> Prediction[S]:
        """The same with its reasoning and its completions."""

        async def run() -> Prediction[S]:
            return await self.module.run(**inputs)

        return the_portal().call(run)


def Predict(signature: type[S] | str, /, *, model: Any = None, **options: Any) -> BlockingPredict[S]:  # noqa: N802  the twin's name
    """As `clisup.llm.Predict`; the model may be a blocking one, too."""
    return BlockingPredict(AsyncPredict(signature, model=_async(model), **options))


def ChainOfThought(signature: type[S] | str, /, *, model: Any = None, **options: Any) -> BlockingPredict[S]:  # noqa: N802  the twin's name
    """As `clisup.llm.ChainOfThought`; the model may be a blocking one, too."""
    return BlockingPredict(AsyncChainOfThought(signature, model=_async(model), **options))


def run_workflow(workflow: Loop, task: Any = None, *, model: Any = None, **options: Any) -> WorkflowResult:
    """As `workflow.run(task, model=model, ...)`. Its stages are async functions; the model may be a blocking one, too."""

    async def run() -> WorkflowResult:
        return await workflow.run(task, model=_async(model), **options)

    return the_portal().call(run)


@contextmanager
def entered(manager: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """An asynchronous context manager, made and entered in trio's thread, as a blocking one."""
    held: Held[T] = the_portal().hold(manager())
    try:
        yield held.value
    finally:
        held.close()
