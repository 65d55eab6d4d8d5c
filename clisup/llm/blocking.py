"""The model layer for programs without trio, under the same names.

    from clisup.llm import blocking

    model = blocking.resolve("claude/opus")
    print(model.complete("Say hello.").text)
    with model.chat() as chat:
        for event in chat.stream("Count to ten."): ...

A `Portal` runs all asynchronous code in one trio thread. The thread starts with the first call and serves any number of threads.
Inside trio itself, trio refuses these calls.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Generic, Never, Self, TypeVar, Unpack, overload

import trio

from clisup.llm import models
from clisup.llm.answers import Completion, ModelName, StreamEvent
from clisup.llm.calls import CallOptions, ModelCalls
from clisup.llm.chat import Chat, ChatOptions
from clisup.llm.conversation.conversation import Conversation as AsyncConversation
from clisup.llm.conversation.nodes import Turn
from clisup.llm.messages import Message, Prompt
from clisup.llm.signatures import ChainOfThought as AsyncChainOfThought
from clisup.llm.signatures import Predict as AsyncPredict
from clisup.llm.signatures import Prediction, Signature
from clisup.llm.streams import EventStream, HeldBlock, stream_of
from clisup.llm.structured import REPAIRS, Structured
from clisup.llm.workflow import Loop, WorkflowResult

__all__ = [
    "BlockingChat",
    "BlockingConversation",
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

ENDING_S = 15.0
"""Seconds that the end of the program waits for open chats. The end of each chat is bounded by less."""

T = TypeVar("T")
S = TypeVar("S", bound=Signature)


# -- the trio thread --------------------------------------------------------------------------------------------------


class Portal:
    """Thread that runs trio. It ends with the program, and ends every open block."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), name="clisup-llm", daemon=True)
        self._thread.start()
        self._ready.wait()

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Await `function(...)` in trio and return its result.

        An exception that interrupts the wait, such as Ctrl-C, cancels the call and is raised after the call has ended.
        """
        outcome: list[T] = []
        scope, ended = trio.CancelScope(), threading.Event()

        async def run() -> None:
            try:
                with scope:
                    outcome.append(await function(*args, **kwargs))
            finally:
                ended.set()

        try:
            trio.from_thread.run(run, trio_token=self._token)
        except BaseException as error:
            if not ended.is_set() and not isinstance(error, RuntimeError):  # trio's word for a call that never began
                self._token.run_sync_soon(scope.cancel)
                ended.wait(ENDING_S)
            raise
        return outcome[0]

    @contextmanager
    def block(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an asynchronous context manager in trio as a blocking one."""
        held = HeldBlock(manager)
        self.call(held.enter, self._nursery)
        try:
            yield held.value
        finally:
            try:
                self.call(held.close)
            except trio.RunFinishedError:
                pass  # the end of the program has left the block
            if held.failure is not None:
                raise held.failure

    def close(self) -> None:
        """End all open blocks, within `ENDING_S`."""
        try:
            self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
        except trio.RunFinishedError:
            return
        self._thread.join(ENDING_S)

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            self._token, self._nursery = trio.lowlevel.current_trio_token(), nursery
            self._ready.set()
            await trio.sleep_forever()


_portals: dict[int, Portal] = {}
_starting = threading.Lock()


def the_portal() -> Portal:
    """Return the portal of this process. A fork gets its own, because threads do not survive a fork."""
    with _starting:
        if (portal := _portals.get(os.getpid())) is None:
            portal = _portals[os.getpid()] = Portal()
            atexit.register(portal.close)
        return portal


# -- models -----------------------------------------------------------------------------------------------------------


def resolve(name: str | ModelName, **options: Any) -> BlockingModel:
    """Return the model of this name, as `clisup.llm.resolve` does."""
    return BlockingModel(models.resolve(name, **options))


def Client(primary: str | Any, fallbacks: str | Sequence[str | Any] = (), **options: Any) -> BlockingModel:  # noqa: N802  the twin's name
    """Return a client with fallbacks, as `clisup.llm.Client`. Blocking models are allowed, too."""
    others = fallbacks if isinstance(fallbacks, str) else [_async(model) for model in fallbacks]
    return BlockingModel(models.Client(_async(primary), others, **options))


def _async(model: Any) -> Any:
    return model.model if isinstance(model, BlockingModel) else model


class BlockingStream:
    """Iterator of `StreamEvent`s. `completion` is set after a successful end. Leaving the `with` block early interrupts the turn."""

    def __init__(self, events: EventStream) -> None:
        self._events = events

    @property
    def completion(self) -> Completion | None:
        """The whole answer, after the stream's end."""
        return self._events.completion

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        event = the_portal().call(_next, self._events)
        if event is None:
            raise StopIteration
        return event

    def finish(self) -> Completion:
        """Read the rest of the stream and return the completion."""
        return the_portal().call(self._events.finish)

    def close(self) -> None:
        """End the stream, and its turn if the turn still runs."""
        the_portal().call(self._events.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


async def _next(events: EventStream) -> StreamEvent | None:
    return await anext(events, None)


class BlockingStreamBlock:
    """Block of `BlockingModel.stream`. The block keeps the chat of the events open."""

    def __init__(self, block: AbstractContextManager[EventStream]) -> None:
        self._block = block

    def __enter__(self) -> BlockingStream:
        return BlockingStream(self._block.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, traceback)

    def __iter__(self) -> Never:
        """Raise an error that explains the block."""
        raise TypeError(
            "a model's stream needs its block: write `with model.stream(...) as events:` and iterate over `events`"
        )


class BlockingChat:
    """Chat of a `BlockingModel`. `chat` is the asynchronous chat."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    @property
    def model(self) -> ModelName:
        """The model that answers now."""
        return self.chat.model

    @property
    def session_id(self) -> str | None:
        """The daemon's session, if the chat has one."""
        return self.chat.session_id

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> BlockingStream:
        """Return the events of one answer."""
        return BlockingStream(stream_of(self.chat, prompt, output_schema=output_schema))

    def complete(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> Completion:
        """Return one whole answer."""
        with self.stream(prompt, output_schema=output_schema) as events:
            return events.finish()


class BlockingModel:
    """Model for blocking code. `model` is the asynchronous model."""

    def __init__(self, model: ModelCalls) -> None:
        self.model = model

    def __str__(self) -> str:
        return str(self.model)

    def __repr__(self) -> str:
        return f"BlockingModel({self.model!r})"

    @contextmanager
    def chat(self, options: ChatOptions | None = None) -> Iterator[BlockingChat]:
        """Open a chat that ends with the block."""
        with the_portal().block(self.model.chat(options)) as chat:
            yield BlockingChat(chat)

    def complete(self, prompt: Prompt | Iterable[Message], **options: Unpack[CallOptions]) -> Completion:
        """Return one whole answer."""
        return the_portal().call(self.model.complete, prompt, **options)

    def stream(self, prompt: Prompt | Iterable[Message], **options: Unpack[CallOptions]) -> BlockingStreamBlock:
        """Stream the events of one answer, within a block. Leaving the block early interrupts the turn."""
        return BlockingStreamBlock(the_portal().block(self.model.stream(prompt, **options)))

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
    def structured(self, prompt: Any, schema: Any, *, repairs: int = REPAIRS, **options: Any) -> Structured[Any]:
        """Return a value that fits a type or a JSON Schema."""
        return the_portal().call(self.model.structured, prompt, schema, repairs=repairs, **options)


# -- conversations, signatures, workflows -----------------------------------------------------------------------------


class BlockingConversation:
    """Conversation of blocking code, in a `with` block. `conversation` is the asynchronous one, for reading and editing."""

    def __init__(self, model: BlockingModel | Any, **options: Any) -> None:
        self.conversation = AsyncConversation(_async(model), **options)
        self._block: AbstractContextManager[AsyncConversation] | None = None

    def __enter__(self) -> Self:
        block = the_portal().block(self.conversation)
        block.__enter__()
        self._block = block
        return self

    def __exit__(self, *_exc: object) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)

    def send(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> Turn:
        """Send a prompt and return the whole turn."""
        return the_portal().call(self.conversation.send, prompt, output_schema=output_schema)

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> BlockingStream:
        """Return the events of the answer. At `Finished`, the turn is in `turns`."""
        return BlockingStream(self.conversation.stream(prompt, output_schema=output_schema))

    def save(self, path: str | None = None) -> None:
        """Write the file. The default path is the conversation's own."""
        the_portal().call(self.conversation.save, path)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, with the marks of the last edit."""
        return self.conversation.turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the model sees."""
        return self.conversation.messages


Conversation = BlockingConversation


class BlockingPredict(Generic[S]):
    """Question of blocking code. `module` is the asynchronous module."""

    def __init__(self, module: AsyncPredict[S]) -> None:
        self.module = module

    def __call__(self, **inputs: Any) -> S:
        """Return the inputs and outputs, typed."""
        return self.run(**inputs).value

    def run(self, **inputs: Any) -> Prediction[S]:
        """Return the outputs with their reasoning and completions."""
        return the_portal().call(self.module.run, **inputs)


def Predict(signature: type[S] | str, /, *, model: Any = None, **options: Any) -> BlockingPredict[S]:  # noqa: N802  the twin's name
    """Return a question, as `clisup.llm.Predict`. The model may be a blocking one."""
    return BlockingPredict(AsyncPredict(signature, model=_async(model), **options))


def ChainOfThought(signature: type[S] | str, /, *, model: Any = None, **options: Any) -> BlockingPredict[S]:  # noqa: N802  the twin's name
    """Return a question with reasoning, as `clisup.llm.ChainOfThought`. The model may be a blocking one."""
    return BlockingPredict(AsyncChainOfThought(signature, model=_async(model), **options))


def run_workflow(workflow: Loop, task: Any = None, *, model: Any = None, **options: Any) -> WorkflowResult:
    """Run a workflow, as `workflow.run(task, model=model, ...)`. Its stages are async functions. The model may be a blocking one."""
    return the_portal().call(workflow.run, task, model=_async(model), **options)
