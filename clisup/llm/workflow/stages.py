"""What a workflow is made of: a `Stage` has a name and a function, which is given the `StageRun` that it is part of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from clisup.errors import UsageError
from clisup.llm.asking import ask
from clisup.llm.budget import Budget
from clisup.llm.chat import Completion
from clisup.llm.messages import Prompt
from clisup.llm.signatures import Predict, Prediction, Signature, active
from clisup.llm.workflow.recording_chat import RecordingChat, WorkflowModel
from clisup.llm.workflow.records import as_json
from clisup.llm.workflow.steps import Steps

__all__ = ["Stage", "StageFunction", "StageRun"]

S = TypeVar("S", bound=Signature)


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
    steps: Steps

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

    async def step(self, name: str, work: Callable[[], Awaitable[object]]) -> Any:
        """Do a part of the stage once: `await run.step("fetch", fetch)`. What it gives is JSON, and on disk before this returns.

        Where a later attempt at the stage comes to the step of this name, it gets that, and `work` is not called.
        """
        return await self.steps.once(name, work)

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
                return as_json(value)
            adapter: TypeAdapter[Any] = TypeAdapter(self.result)
            return as_json(adapter.dump_python(adapter.validate_python(value), mode="json"))
        except ValueError as error:  # pydantic's own are such
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
