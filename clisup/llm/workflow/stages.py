"""What a workflow is made of: a `Stage` has a name and a function, which is given the `StageRun` that it is part of."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import trio
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from clisup.errors import ClisupError, UsageError
from clisup.llm.asking import ask
from clisup.llm.budget import Budget
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, Completion, Finished, LanguageModel, StreamEvent
from clisup.llm.failures import LLMError
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.names import ModelName
from clisup.llm.signatures import Predict, Prediction, Signature, active

__all__ = ["LABEL", "NOTE_S", "RecordingChat", "Stage", "StageFunction", "StageRun", "WorkflowModel"]

LABEL = "clisup.workflow"
"""The label of all sessions of a workflow; its value is the run's id."""
NOTE_S = 5.0
"""How long a note to the daemon's event log may take."""

_logger = logging.getLogger("clisup.llm.workflow")  # the program's own log, as that of clisup.llm.budget
S = TypeVar("S", bound=Signature)


class WorkflowModel(ModelCalls):
    """The model of a workflow, as its stages have it: each session has the label `clisup.workflow`, so that it can be found."""

    def __init__(self, model: LanguageModel, run_id: str) -> None:
        self.model = model
        self._labels = {LABEL: run_id}

    def chat(self, options: ChatOptions | None = None) -> AbstractAsyncContextManager[Chat]:
        """As that of the model itself."""
        options = options or ChatOptions()
        return self.model.chat(replace(options, labels={**options.labels, **self._labels}))

    async def end_what_died(self) -> None:
        """A process before this one may have died: its sessions are the daemon's, and what runs there would be done twice."""
        end = getattr(self.model, "end_sessions", None)
        if end is not None and (ended := await end(self._labels)):
            _logger.warning("ended %d sessions of the process before this one", ended)


class RecordingChat:
    """A chat that keeps what is said in it, for the trace: it is what a stage has as `chat`."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.messages: list[Message] = []
        self.turn_ids: list[str] = []

    @property
    def model(self) -> ModelName:
        """Who answers."""
        return self._chat.model

    @property
    def session_id(self) -> str | None:
        """The daemon's session, where there is one."""
        return self._chat.session_id

    def begin(self) -> None:
        """A stage begins: what was said before is another one's."""
        self.messages, self.turn_ids = [], []

    async def note(self, code: str, message: str, data: dict[str, Any]) -> None:
        """Into the session's event log, where the chat has one. In vain, it is logged: the trace has it all the same."""
        note = getattr(self._chat, "note", None)
        if note is None:
            return
        with trio.move_on_after(NOTE_S) as scope:
            try:
                await note(code, message, data=data)
            except (LLMError, ClisupError, OSError) as error:
                _logger.warning("cannot note %s in the event log: %s", message, error)
        if scope.cancelled_caught:
            _logger.warning("cannot note %s in the event log: it took longer than %g s", message, NOTE_S)

    async def stream(
        self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None
    ) -> AsyncIterator[StreamEvent]:
        """As that of any chat; what is whole at its end is kept."""
        async for event in self._chat.stream(prompt, output_schema=output_schema):
            if isinstance(event, Finished):
                completion = event.completion
                self.messages += [*as_messages(prompt), *_answered(completion)]
                self.turn_ids += [completion.turn_id] if completion.turn_id else []
            yield event


def _answered(completion: Completion) -> list[Message]:
    """What an answer added, ending with a word of the model's: after its own structured output claude says none, and a history has to."""
    messages = list(completion.messages or (completion.message,))
    if messages[-1].role != "assistant":
        said = completion.text if completion.structured is None else to_json(completion.structured).decode()
        messages.append(Message.assistant(said or "Done."))
    return messages


@dataclass(frozen=True, slots=True)
class StageRun:
    """What a stage is given.

    `results` are those of the stages before it in this round, `rounds` those of the rounds before, by stage. `attempt` is above 1 where
    it was begun before, in this process or one that died: what it does to the world may have been done. `chat` is the workflow's one
    conversation. Questions to `model` in chats of their own, by `Predict` too, are charged to `budget` all the same.
    """

    task: Any
    round: int
    stage: str
    attempt: int
    results: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]
    model: WorkflowModel
    budget: Budget
    shared: RecordingChat | None

    @property
    def chat(self) -> RecordingChat:
        """The workflow's conversation. Raises `UsageError` where it has none (`chat=False`)."""
        if self.shared is None:
            raise UsageError(
                f"cannot ask in stage {self.stage}, because the workflow shares no chat",
                kind="usage",
                hint="take chat=True",
            )
        return self.shared

    async def ask(self, prompt: Prompt) -> Completion:
        """The answer to a prompt in the workflow's conversation, within the budget."""
        return await ask(self.chat, prompt, budgets=active().budgets)

    async def predict(self, question: type[S] | Predict[S], **inputs: Any) -> Prediction[S]:
        """The outputs of a signature, asked for in the workflow's conversation."""
        predict = question if isinstance(question, Predict) else Predict(question)
        return await predict.run_in(self.chat, **inputs)


StageFunction = Callable[[StageRun], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Stage:
    """`result` is the type of what `run` gives, for pydantic; None: JSON, as it is.

    A stage's result is what its record has of it, also in the process that made it: a tuple of a stage without a type is a list.
    """

    name: str
    run: StageFunction
    result: Any = None

    def to_json(self, value: Any) -> JsonValue:
        """For the record. Raises `UsageError` where JSON cannot carry it."""
        try:
            if self.result is None:
                return to_jsonable_python(value)  # type: ignore[no-any-return]
            adapter: TypeAdapter[Any] = TypeAdapter(self.result)
            return adapter.dump_python(adapter.validate_python(value), mode="json")  # type: ignore[no-any-return]
        except (PydanticSerializationError, ValidationError) as error:
            raise UsageError(
                f"cannot record what stage {self.name} gave, because of {error}",
                kind="usage",
                hint="give JSON, or name its type: result=",
            ) from error

    def from_json(self, value: JsonValue) -> Any:
        """From the record. Raises `UsageError` where it is not of the type any more."""
        if self.result is None:
            return value
        adapter: TypeAdapter[Any] = TypeAdapter(self.result)
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise UsageError(
                f"cannot take the recorded result of stage {self.name}, because of {error}",
                kind="usage",
                hint="the program has changed since: begin a new trace",
            ) from error
