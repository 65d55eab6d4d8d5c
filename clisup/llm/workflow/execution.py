"""One run of a workflow: stage after stage from where its trace ends."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import trio
from pydantic import JsonValue
from pydantic_core import to_json

from clisup.errors import UsageError
from clisup.llm.asking import admit
from clisup.llm.budget import Budget
from clisup.llm.chat import ChatOptions
from clisup.llm.failures import BudgetExhausted
from clisup.llm.messages import Message
from clisup.llm.signatures import active, using
from clisup.llm.sound import sound
from clisup.llm.spending import Spent
from clisup.llm.workflow.progress import Progress
from clisup.llm.workflow.recording_chat import RecordingChat, WorkflowModel
from clisup.llm.workflow.records import Failure, SpentRecord, StageCompleted, StageFailed, StageStarted, as_json
from clisup.llm.workflow.running import Running, now
from clisup.llm.workflow.stages import Stage, StageRun
from clisup.llm.workflow.steps import Steps, awaited

__all__ = ["NOTED_RESULT_BYTES", "Definition", "Execution", "OnStage", "StageDone", "WorkflowResult"]

NOTED_RESULT_BYTES = 32 * 1024
"""A larger result is in the trace alone: a note of the event log is small."""

Rounds = Sequence[Mapping[str, Any]]


class Definition(NamedTuple):
    """What a workflow is."""

    stages: Sequence[Stage]
    max_rounds: int
    until: Callable[[Rounds], bool] | None
    result: Callable[[Rounds], Any]
    chat: bool


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage whose record is on disk. `replayed`: it is taken from the trace, and was run by an earlier call."""

    record: StageCompleted
    value: Any
    replayed: bool = False


OnStage = Callable[[StageDone], Awaitable[object] | object]


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """How it ended. `budget` and `max_rounds` are pauses: with more of it, the same trace goes on. `error` says which budget.

    `result` is that of the whole rounds, None before the first; `rounds` has all results by stage, and the last may be begun only.
    `spent` is what the stages took that ended, in this process or an earlier one.
    """

    outcome: Literal["done", "max_rounds", "budget"]
    result: Any
    rounds: Rounds
    spent: Spent
    run_id: str
    error: BudgetExhausted | None = None


class Execution:
    """Made by `Loop.run`, for one call of it."""

    def __init__(
        self,
        definition: Definition,
        running: Running,
        model: WorkflowModel,
        budget: Budget,
        on_stage: OnStage | None,
        options: ChatOptions,
    ) -> None:
        self._definition, self._running, self._model, self._budget = definition, running, model, budget
        self._on_stage, self._options = on_stage, options
        self._rounds: list[dict[str, Any]] = []

    @property
    def _progress(self) -> Progress:
        return self._running.progress

    async def go(self) -> WorkflowResult:
        """To the end, or to a limit."""
        self._charge_what_is_recorded()
        for record in tuple(self._progress.completed):
            await self._done(record, replayed=True)
        stop = None if self._outcome() else await self._run_the_rest()
        outcome = "budget" if stop else self._outcome()
        assert outcome is not None
        result = self._definition.result(whole) if (whole := self._whole()) else None
        if outcome == "done":
            await self._running.complete(self._recorded(result))
        else:
            why = str(stop) if stop else f"it was not done after {len(whole)} rounds"
            await self._running.pause(outcome, why)
        spent, run_id = self._progress.spent, self._progress.started.run_id
        return WorkflowResult(outcome, result, tuple(self._rounds), spent, run_id, stop)

    def _recorded(self, result: Any) -> JsonValue:
        try:
            return as_json(result)
        except ValueError as error:
            raise UsageError(
                f"cannot record the result of {self._progress.started.name}, because of {error}",
                kind="usage",
                hint="give JSON: result=",
            ) from error

    def _outcome(self) -> Literal["done", "max_rounds"] | None:
        """How it has ended; None: a stage is to run."""
        if self._progress.ended is not None:
            return "done"
        whole = self._whole()
        if len(whole) < len(self._rounds):
            return None
        if whole and self._definition.until is not None and self._definition.until(whole):
            return "done"
        if len(whole) >= self._definition.max_rounds:
            return "done" if self._definition.until is None else "max_rounds"
        return None

    def _whole(self) -> list[dict[str, Any]]:
        return [one for one in self._rounds if len(one) == len(self._definition.stages)]

    # -- what an earlier call did ---------------------------------------------------------------------------------------

    def _charge_what_is_recorded(self) -> None:
        """Each thing once: a budget that was there when it happened has counted it."""
        ended: list[StageCompleted | StageFailed] = [*self._progress.completed, *self._progress.failed]
        for one in ended:
            self._budget.charge(one.spent.spent(), once=self._name_of(one))
        round_, index = self._progress.next
        begun = round_ if index or self._progress.attempts else round_ - 1
        for number in range(1, begun + 1):
            self._budget.charge(Spent(iterations=1), once=self._round_name(number))

    def _name_of(self, one: StageCompleted | StageFailed | StageStarted) -> str:
        return f"{self._progress.started.run_id}:{one.round}:{one.stage}:{one.attempt}"

    def _round_name(self, number: int) -> str:
        return f"{self._progress.started.run_id}:{number}"

    # -- what is to be done ---------------------------------------------------------------------------------------------

    async def _run_the_rest(self) -> BudgetExhausted | None:
        """Until there is an outcome, or a budget is used up."""
        async with AsyncExitStack() as stack:
            chat = None
            if self._running.resumed:
                await self._model.end_what_died()
            try:
                left = admit(active().budgets, iterations=0)
                if self._definition.chat:
                    said = [message for one in self._progress.completed for message in one.messages]
                    said += self._said_in_steps()  # another CLI may have said it, which counts the ids of calls anew
                    history = sound([*self._options.history, *said]) if said else self._options.history
                    options = replace(self._options, history=history, budget=self._options.budget or left)
                    chat = RecordingChat(await stack.enter_async_context(self._model.chat(options)))
            except BudgetExhausted as error:
                return error
            while self._outcome() is None:
                stop = await self._run_next(chat)
                if stop is not None:
                    return stop
        return None

    async def _run_next(self, chat: RecordingChat | None) -> BudgetExhausted | None:
        round_, index = self._progress.next
        if index == 0 and self._progress.attempts == 0:
            try:
                self._budget.reserve()
            except BudgetExhausted as error:
                return error
            self._budget.witness(self._round_name(round_))
        stage = self._definition.stages[index]
        started = StageStarted(at=now(), round=round_, stage=stage.name, attempt=self._progress.attempts + 1)
        await self._running.append(started)
        part = self._budget.sub(name=stage.name, own_iterations=True)
        part.begin()
        try:
            result = await self._run_stage(stage, started, part, chat)
        except BaseException as error:
            await self._failed(started, error, part)
            if (stop := _exhausted(error)) is None:
                raise
            return stop
        await self._completed(started, result, part, chat)
        return None

    async def _run_stage(
        self, stage: Stage, started: StageStarted, part: Budget, chat: RecordingChat | None
    ) -> JsonValue:
        if chat is not None:
            chat.begin(self._said_in_steps())
        this_round = self._rounds[-1] if len(self._rounds) == started.round else {}
        run = StageRun(
            task=self._progress.started.task,
            round=started.round,
            stage=stage.name,
            attempt=started.attempt,
            results=dict(this_round),
            rounds=tuple(self._rounds[: started.round - 1]),
            model=self._model,
            budget=part,
            shared=chat,
            steps=Steps(self._running, started, part, chat),
        )
        with using(self._model, budget=part):
            return stage.to_json(await awaited(stage.run(run), f"stage {stage.name}"))

    def _said_in_steps(self) -> list[Message]:
        """What the steps of the next stage have said in the conversation already."""
        return [message for step in self._progress.steps for message in step.messages]

    async def _failed(self, started: StageStarted, error: BaseException, part: Budget) -> None:
        record = StageFailed(
            at=now(),
            round=started.round,
            stage=started.stage,
            attempt=started.attempt,
            error=_failure(error),
            spent=SpentRecord.of(part.spent),
        )
        self._budget.witness(self._name_of(started))
        await self._running.append(record)

    async def _completed(
        self, started: StageStarted, result: JsonValue, part: Budget, chat: RecordingChat | None
    ) -> None:
        asked = chat if chat and chat.messages else None
        record = StageCompleted(
            at=now(),
            round=started.round,
            stage=started.stage,
            attempt=started.attempt,
            result=result,
            messages=tuple(asked.messages) if asked else (),
            spent=SpentRecord.of(part.spent),
            model=str(asked.model) if asked else None,
            session_id=asked.session_id if asked else None,
            turn_ids=tuple(asked.turn_ids) if asked else (),
        )
        self._budget.witness(self._name_of(started))
        await self._running.append(record)
        if chat is not None:
            message = f"workflow {self._progress.started.name}: round {record.round}, stage {record.stage} is done"
            await chat.note("client.workflow", message, self._note(record))
        await self._done(record, replayed=False)

    async def _done(self, record: StageCompleted, *, replayed: bool) -> None:
        stage = next(stage for stage in self._definition.stages if stage.name == record.stage)
        value = stage.from_json(record.result)
        if len(self._rounds) < record.round:
            self._rounds.append({})
        self._rounds[-1][record.stage] = value
        if self._on_stage is not None:
            answer = self._on_stage(StageDone(record, value, replayed))
            if inspect.isawaitable(answer):
                await answer

    def _note(self, record: StageCompleted) -> dict[str, Any]:
        size = len(to_json(record.result))
        return {
            "run_id": self._progress.started.run_id,
            "workflow": self._progress.started.name,
            "round": record.round,
            "stage": record.stage,
            "attempt": record.attempt,
            "spent": record.spent.model_dump(mode="json"),
            **({"result": record.result} if size <= NOTED_RESULT_BYTES else {"result_bytes": size}),
        }


def _exhausted(error: BaseException) -> BudgetExhausted | None:
    """A budget's word, also of several tasks of a stage at once."""
    if isinstance(error, BudgetExhausted):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [_exhausted(one) for one in error.exceptions]
        return found[0] if all(found) else None
    return None


def _failure(error: BaseException) -> Failure:
    if isinstance(error, trio.Cancelled):
        return Failure(kind="cancelled", message="it was cancelled")
    words = str(error).encode(errors="replace").decode()  # the name of a file that is no UTF-8 may be in them
    return Failure(kind=str(getattr(error, "kind", type(error).__name__)), message=words or type(error).__name__)
