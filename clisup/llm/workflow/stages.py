"""Stages of a workflow: their model and chat, their view of the run, and steps that are done once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import trio
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.llm.answers import Completion, Finished, ModelName, StreamEvent
from clisup.llm.budget import Budget, ask_within
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import LLMError, usage_error
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.signatures import Predict, Prediction, Signature, active
from clisup.llm.workflow.records import SpentRecord, StageStarted, StepCompleted, as_json
from clisup.llm.workflow.trace import RunningWorkflow, now

LABEL = "clisup.workflow"
"""Label of all sessions of a workflow. Its value is the run's id."""
NOTE_S = 5.0
"""Seconds that a note to the daemon's event log may take."""

_logger = logging.getLogger("clisup.llm.workflow")  # the program's own log, as clisup.llm.budget


class WorkflowModel(ModelCalls):
    """Model of a workflow's stages. Each session has the label `clisup.workflow`, by which a later process finds it."""

    def __init__(self, model: LanguageModel, run_id: str) -> None:
        self.model = model
        self._labels = {LABEL: run_id}

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        return self.model.chat(replace(options, labels={**options.labels, **self._labels}))

    async def end_old_sessions(self) -> None:
        """End sessions of an earlier process that died. Their turns still run in the daemon, and would be done twice."""
        end = getattr(self.model, "end_sessions", None)
        if end is not None and (ended := await end(self._labels)):
            _logger.warning("ended %d sessions of the process before this one", ended)


class StageChat:
    """Chat of a stage. It keeps all messages for the trace."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.messages: list[Message] = []
        self.turn_ids: list[str] = []
        self._taken = 0

    @property
    def model(self) -> ModelName:
        """The model that answers."""
        return self._chat.model

    @property
    def session_id(self) -> str | None:
        """The daemon's session, if the chat has one."""
        return self._chat.session_id

    def begin(self, kept: Sequence[Message]) -> None:
        """Begin a stage. `kept` are the messages of its steps in earlier attempts."""
        self.messages, self.turn_ids = list(kept), []
        self._taken = len(self.messages)

    def take_new(self) -> list[Message]:
        """Return the stage's messages since the last call."""
        new, self._taken = self.messages[self._taken :], len(self.messages)
        return new

    async def note(self, code: str, message: str, data: JsonObject) -> None:
        """Write a note into the session's event log, if the chat has one. A failure is only logged, because the trace is complete."""
        note = getattr(self._chat, "note", None)
        if note is None:
            return
        with trio.move_on_after(NOTE_S) as scope:
            try:
                await note(code, message, data=data)
            except (LLMError, ClisupError, OSError) as error:
                _logger.warning("cannot note %s in the event log: %s", message, error)
        if scope.cancelled_caught:
            _logger.warning("cannot note %s in the event log: no answer within %g s", message, NOTE_S)

    async def stream(
        self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None
    ) -> AsyncIterator[StreamEvent]:
        """Stream an answer, and keep its messages at the end."""
        async for event in self._chat.stream(prompt, output_schema=output_schema):
            if isinstance(event, Finished):
                completion = event.completion
                self.messages += [*as_messages(prompt), *_answered(completion)]
                self.turn_ids += [completion.turn_id] if completion.turn_id else []
            yield event


def _answered(completion: Completion) -> list[Message]:
    """Return an answer's messages, the last of them the model's. After structured output, claude sends no message."""
    messages = list(completion.messages or (completion.message,))
    if messages[-1].role != "assistant":
        said = completion.text if completion.structured is None else to_json(completion.structured).decode()
        messages.append(Message.assistant(said or "Done."))
    return messages


class Steps:
    """Steps of one attempt at a stage, with the recorded results of earlier attempts."""

    def __init__(self, running: RunningWorkflow, started: StageStarted, part: Budget, chat: StageChat | None) -> None:
        self._running, self._started, self._part, self._chat = running, started, part, chat
        self._kept = {step.step: step.result for step in running.progress.steps}
        self._asked: set[str] = set()

    async def once(self, name: str, work: Callable[[], Awaitable[object]]) -> JsonValue:
        """Return the recorded result of this step, or do `work` and record its result first."""
        if name in self._asked:
            raise usage_error(f"step {name} of stage {self._started.stage} came twice", "give each step its own name")
        self._asked.add(name)
        if name in self._kept:
            return self._kept[name]
        value = await awaited(work(), f"step {name} of stage {self._started.stage}")
        result = as_json(value, f"the result of step {name}")
        record = StepCompleted(
            at=now(),
            **self._started.place,
            step=name,
            result=result,
            messages=tuple(self._chat.take_new()) if self._chat else (),
            spent=SpentRecord.of(self._part.spent),
        )
        await self._running.append(record)
        return result


async def awaited(given: object, what: str) -> object:
    """Return the result of a stage or step. Raises `UsageError` for a function that is not async."""
    if not inspect.isawaitable(given):
        raise usage_error(f"the function of {what} is not async", "write async def")
    return await given


S = TypeVar("S", bound=Signature)


@dataclass(frozen=True, slots=True)
class StageRun:
    """A stage's view of the run.

    `results` are the results of earlier stages of this round, `rounds` those of earlier rounds, by stage. An `attempt` above 1 follows
    an earlier one, perhaps of a process that died: its effects may have happened. `chat` is the workflow's one conversation.
    `budget` also pays for questions to `model` in other chats, such as those of `Predict`.
    """

    task: Any
    round: int
    stage: str
    attempt: int
    results: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]
    model: WorkflowModel
    budget: Budget
    shared: StageChat | None
    steps: Steps

    @property
    def chat(self) -> StageChat:
        """The workflow's conversation. Raises `UsageError` with `chat=False`."""
        if self.shared is None:
            raise usage_error(
                f"stage {self.stage} has no chat: the workflow was made with chat=False", "make it with chat=True"
            )
        return self.shared

    async def step(self, name: str, work: Callable[[], Awaitable[object]]) -> Any:
        """Run a part of the stage once: `await run.step("fetch", fetch)`. Its result is JSON, and durable before this returns.

        A later attempt at the stage gets the same result for a step of this name, without calling `work`.
        """
        return await self.steps.once(name, work)

    async def ask(self, prompt: Prompt) -> Completion:
        """Ask in the workflow's conversation, within the budget."""
        return await ask_within(active().budgets, self.chat, prompt)

    async def predict(self, question: type[S] | Predict[S], **inputs: Any) -> Prediction[S]:
        """Ask for the outputs of a signature in the workflow's conversation."""
        predict = question if isinstance(question, Predict) else Predict(question)
        return await predict.run_in(self.chat, **inputs)


StageFunction = Callable[[StageRun], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Stage:
    """Stage of a workflow. `result` is the type of its result for pydantic. The default is plain JSON.

    Other stages always see the recorded result: a tuple of a stage without a type is a list.
    """

    name: str
    run: StageFunction
    result: Any = None

    def to_json(self, value: Any) -> JsonValue:
        """Return a result for the record. Raises `UsageError` for a value without JSON form."""
        if self.result is not None:
            adapter: TypeAdapter[Any] = TypeAdapter(self.result)
            try:
                value = adapter.dump_python(adapter.validate_python(value), mode="json")
            except ValueError as error:  # also pydantic's own
                raise usage_error(f"the result of stage {self.name} is not of its type: {error}") from error
        return as_json(value, f"the result of stage {self.name}", "return JSON, or name the type: result=")

    def from_json(self, value: JsonValue) -> Any:
        """Return a recorded result. Raises `UsageError` for a result of another type."""
        if self.result is None:
            return value
        adapter: TypeAdapter[Any] = TypeAdapter(self.result)
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise usage_error(
                f"the recorded result of stage {self.name} does not fit: {error}",
                "begin a new trace: the program has changed",
            ) from error
