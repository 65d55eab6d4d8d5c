"""`Loop`: stages one after the other, round after round. Each is recorded before the next begins, so a crash loses one at most."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

import trio
from pydantic import JsonValue
from pydantic_core import to_json

from clisup.client.raw import JsonObject
from clisup.llm.budget import Budget, Spent, admit
from clisup.llm.chat import ChatOptions, LanguageModel
from clisup.llm.failures import BudgetExhausted, usage_error
from clisup.llm.histories import valid_history
from clisup.llm.messages import Message
from clisup.llm.signatures import active, using
from clisup.llm.workflow.records import (
    Failure,
    Progress,
    SpentRecord,
    StageCompleted,
    StageFailed,
    StageStarted,
    as_json,
)
from clisup.llm.workflow.stages import Stage, StageChat, StageRun, Steps, WorkflowModel, awaited
from clisup.llm.workflow.trace import RunningWorkflow, now

NOTED_RESULT_BYTES = 32 * 1024
"""Largest result in a note of the event log. The trace has larger ones."""

Rounds = Sequence[Mapping[str, Any]]
"""Results of the rounds, by stage."""


@dataclass(frozen=True, slots=True)
class StageDone:
    """Stage with a durable record. `replayed`: an earlier call ran it."""

    record: StageCompleted
    value: Any
    replayed: bool = False


OnStage = Callable[[StageDone], Awaitable[object] | object]


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """End of a run. The outcomes `budget` and `max_rounds` are pauses: with a higher limit, the same trace continues.

    `result` comes from the complete rounds, and is None before the first. `rounds` has all results by stage; the last round may be
    incomplete. `spent` is the use of all ended stages, in this and earlier processes. `error` names the budget.
    """

    outcome: Literal["done", "max_rounds", "budget"]
    result: Any
    rounds: Rounds
    spent: Spent
    run_id: str
    error: BudgetExhausted | None = None


class Execution:
    """One call of `Loop.run`: stage after stage from the end of the trace."""

    def __init__(
        self,
        loop: Loop,
        running: RunningWorkflow,
        model: WorkflowModel,
        budget: Budget,
        on_stage: OnStage | None,
        options: ChatOptions,
    ) -> None:
        self._loop, self._running, self._model, self._budget = loop, running, model, budget
        self._on_stage, self._options = on_stage, options
        self._rounds: list[dict[str, Any]] = []

    @property
    def _progress(self) -> Progress:
        return self._running.progress

    async def go(self) -> WorkflowResult:
        """Run to the end, or to a limit."""
        self._charge_recorded()
        for record in tuple(self._progress.completed):
            await self._done(record, replayed=True)
        stop = None if self._outcome() else await self._run_rest()
        outcome = "budget" if stop else self._outcome()
        assert outcome is not None
        result = self._loop.result(whole) if (whole := self._whole()) else None
        if outcome == "done":
            what = f"the result of {self._progress.started.name}"
            await self._running.complete(as_json(result, what, "return JSON: result="))
        else:
            why = str(stop) if stop else f"it was not done after {len(whole)} rounds"
            await self._running.pause(outcome, why)
        spent, run_id = self._progress.spent, self._progress.started.run_id
        return WorkflowResult(outcome, result, tuple(self._rounds), spent, run_id, stop)

    def _outcome(self) -> Literal["done", "max_rounds"] | None:
        """Return the outcome, or None if another stage follows."""
        if self._progress.ended is not None:
            return "done"
        whole = self._whole()
        if len(whole) < len(self._rounds):
            return None
        if whole and self._loop.until is not None and self._loop.until(whole):
            return "done"
        if len(whole) >= self._loop.max_rounds:
            return "done" if self._loop.until is None else "max_rounds"
        return None

    def _whole(self) -> list[dict[str, Any]]:
        return [one for one in self._rounds if len(one) == len(self._loop.stages)]

    # -- earlier calls ---------------------------------------------------------------------------------------

    def _charge_recorded(self) -> None:
        """Charge recorded use once. A budget that has witnessed the use has counted it."""
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

    # -- the next stages ---------------------------------------------------------------------------------------------

    async def _run_rest(self) -> BudgetExhausted | None:
        """Run stages until there is an outcome, or until a budget is used up."""
        async with AsyncExitStack() as stack:
            chat = None
            if self._running.resumed:
                await self._model.end_old_sessions()
            try:
                left = admit(active().budgets, iterations=0)
                if self._loop.chat:
                    said = [message for one in self._progress.completed for message in one.messages]
                    said += self._said_in_steps()  # another CLI may reuse ids of calls
                    history = valid_history([*self._options.history, *said]) if said else self._options.history
                    options = replace(self._options, history=history, budget=self._options.budget or left)
                    chat = StageChat(await stack.enter_async_context(self._model.chat(options)))
            except BudgetExhausted as error:
                return error
            while self._outcome() is None:
                stop = await self._run_next(chat)
                if stop is not None:
                    return stop
        return None

    async def _run_next(self, chat: StageChat | None) -> BudgetExhausted | None:
        round_, index = self._progress.next
        if index == 0 and self._progress.attempts == 0:
            try:
                self._budget.reserve()
            except BudgetExhausted as error:
                return error
            self._budget.witness(self._round_name(round_))
        stage = self._loop.stages[index]
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

    async def _run_stage(self, stage: Stage, started: StageStarted, part: Budget, chat: StageChat | None) -> JsonValue:
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
        """Return messages of the next stage's steps in earlier attempts."""
        return [message for step in self._progress.steps for message in step.messages]

    async def _failed(self, started: StageStarted, error: BaseException, part: Budget) -> None:
        spent = SpentRecord.of(part.spent)
        record = StageFailed(at=now(), **started.place, error=_failure(error), spent=spent)
        self._budget.witness(self._name_of(started))
        await self._running.append(record)

    async def _completed(self, started: StageStarted, result: JsonValue, part: Budget, chat: StageChat | None) -> None:
        asked = chat if chat and chat.messages else None
        record = StageCompleted(
            at=now(),
            **started.place,
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
        stage = next(stage for stage in self._loop.stages if stage.name == record.stage)
        value = stage.from_json(record.result)
        if len(self._rounds) < record.round:
            self._rounds.append({})
        self._rounds[-1][record.stage] = value
        if self._on_stage is not None:
            told = self._on_stage(StageDone(record, value, replayed))
            if inspect.isawaitable(told):
                await told

    def _note(self, record: StageCompleted) -> JsonObject:
        size = len(to_json(record.result))
        return {
            "run_id": self._progress.started.run_id,
            "workflow": self._progress.started.name,
            **record.place,
            "spent": record.spent.model_dump(mode="json"),
            **({"result": record.result} if size <= NOTED_RESULT_BYTES else {"result_bytes": size}),
        }


def _exhausted(error: BaseException) -> BudgetExhausted | None:
    """Return the error of a used up budget, also from several tasks of a stage."""
    if isinstance(error, BudgetExhausted):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [_exhausted(one) for one in error.exceptions]
        return found[0] if all(found) else None
    return None


def _failure(error: BaseException) -> Failure:
    if isinstance(error, trio.Cancelled):
        return Failure(kind="cancelled", message="the stage was cancelled")
    words = str(error).encode(errors="replace").decode()  # the message may contain a file name that is not UTF-8
    return Failure(kind=str(getattr(error, "kind", type(error).__name__)), message=words or type(error).__name__)


class Loop:
    """Workflow of stages in order, for `max_rounds` rounds, or until `until(rounds)` is true after a round.

    Without `until`, all rounds run, by default one: a pipeline. With `until`, the limit ends an endless loop as `max_rounds`.
    With `chat=False` there is no common conversation. `result(rounds)` is the result; the default is the last stage's result in
    the last complete round.
    """

    def __init__(
        self,
        *stages: Stage,
        max_rounds: int = 1,
        until: Callable[[Rounds], bool] | None = None,
        result: Callable[[Rounds], Any] | None = None,
        name: str = "loop",
        chat: bool = True,
    ) -> None:
        if wrong := [stage for stage in stages if not isinstance(stage, Stage)]:
            raise usage_error(
                f"in the workflow {name}, {wrong[0]!r:.100} is not a stage",
                'write Loop(Stage("write", write), Stage("check", check))',
            )
        names = [stage.name for stage in stages]
        problems = {
            "it has no stages": not names,
            "its stages need names of their own": len(set(names)) < len(names) or "" in names,
            f"max_rounds is {max_rounds}": max_rounds < 1,
        }
        for why in (why for why, wrong in problems.items() if wrong):
            raise usage_error(f"wrong workflow {name}: {why}")
        self.name, self.stages, self.max_rounds, self.until, self.chat = name, stages, max_rounds, until, chat
        self.result: Callable[[Rounds], Any] = result or (lambda rounds: rounds[-1][names[-1]])

    async def run(
        self,
        task: Any = None,
        *,
        model: LanguageModel | str | None = None,
        budget: Budget | None = None,
        trace: str | os.PathLike[str] | None = None,
        on_stage: OnStage | None = None,
        options: ChatOptions | None = None,
    ) -> WorkflowResult:
        """Run the workflow, or continue at the end of `trace`. Recorded stages do not run again.

        The task is JSON. An iteration of the budget is a round. `model` may be a name; the default is the nearest `using(model)`.
        `options` are those of the conversation, by default without a CLI's own tools (`cli_tools="default"` keeps them).
        `on_stage` is called after each durable record, first for recorded stages.

        Raises the exceptions of stages; another run with the same trace repeats the failed stage. Raises `UsageError` for the trace
        of another workflow or task and for a running one, and `WorldError` if the trace cannot be written.
        """
        names = [stage.name for stage in self.stages]
        own = budget or Budget(name=self.name)
        with using(model, budget=own) as here:
            found = here.model_to(f"run {self.name}")
            async with RunningWorkflow.open(self.name, names, task, trace) as running:
                model = WorkflowModel(found, running.progress.started.run_id)
                opened = (options or ChatOptions()).plain(f"run {self.name}")
                return await Execution(self, running, model, own, on_stage, opened).go()
