"""A workflow on its way: what it has done, in memory and in its trace."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import trio
from pydantic import JsonValue

from clisup.errors import UsageError
from clisup.llm.spending import Spent
from clisup.llm.workflow.progress import Progress, fold
from clisup.llm.workflow.records import (
    Failure,
    Record,
    SpentRecord,
    StageFailed,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowStarted,
    as_json,
)
from clisup.llm.workflow.trace import Trace

__all__ = ["Running", "now"]

_NOBODY_KNOWS = Spent(answers=1, unknown_tokens=1, unknown_usd=1)


def now() -> str:
    """RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Running:
    """`append` folds a record into `progress` once it is durable. `resumed`: it had begun before this call."""

    def __init__(self, progress: Progress, trace: Trace | None, *, resumed: bool) -> None:
        self.progress, self._trace = progress, trace
        self.resumed = resumed

    @classmethod
    @asynccontextmanager
    async def open(
        cls, name: str, stages: Sequence[str], task: Any, path: str | os.PathLike[str] | None
    ) -> AsyncIterator[Running]:
        """Begin a trace, or go on with the one that is there. Raises as `Trace.open`, and `UsageError` where it is of something else."""
        try:
            given = as_json(task)
        except ValueError as error:
            raise UsageError(f"cannot run {name}, because its task is no JSON: {error}", kind="usage") from error
        trace = None if path is None else await trio.to_thread.run_sync(Trace.open, path)
        try:
            progress = trace.progress() if trace else None
            if progress is not None:
                assert trace is not None
                _check_same(progress.started, name, stages, given, trace)
            resumed = progress is not None
            running = cls(progress or await _begin(name, stages, given, trace), trace, resumed=resumed)
            await running._say_what_died()
            yield running
        finally:
            if trace is not None:
                trace.close()

    async def append(self, record: Record) -> None:
        """Durable when it returns; a cancellation waits for it."""
        with trio.CancelScope(shield=True):
            if self._trace is not None:
                await trio.to_thread.run_sync(self._trace.append, record)
        fold(self.progress, record, "the workflow")

    async def pause(self, reason: Any, message: str) -> None:
        """It stops at a limit. Said once, however often it is run again in vain."""
        paused = self.progress.paused
        if paused is None or (paused.reason, paused.message) != (reason, message):
            await self.append(WorkflowPaused(at=now(), reason=reason, message=message))

    async def complete(self, result: JsonValue) -> None:
        """It is done."""
        if self.progress.ended is None:
            rounds = len(self.progress.rounds())
            await self.append(WorkflowCompleted(at=now(), result=result, rounds=rounds))

    async def _say_what_died(self) -> None:
        """The process before this one ended in the middle of a stage: what that took nobody knows, and it counts as unknown."""
        died = self.progress.running
        if died is not None:
            error = Failure(kind="crashed", message="the process ended in the middle of it")
            where = {"round": died.round, "stage": died.stage, "attempt": died.attempt}
            told = [step.spent.spent() for step in self.progress.steps if step.attempt == died.attempt][-1:]
            spent = SpentRecord.of(sum(told, _NOBODY_KNOWS))
            await self.append(StageFailed(at=now(), error=error, spent=spent, **where))


async def _begin(name: str, stages: Sequence[str], task: JsonValue, trace: Trace | None) -> Progress:
    started = WorkflowStarted(at=now(), run_id=str(uuid.uuid4()), name=name, stages=tuple(stages), task=task)
    if trace is not None:
        await trio.to_thread.run_sync(trace.append, started)
    return Progress(started)


def _check_same(started: WorkflowStarted, name: str, stages: Sequence[str], task: JsonValue, trace: Trace) -> None:
    theirs = {"name": started.name, "stages": list(started.stages), "task": started.task}
    ours = {"name": name, "stages": list(stages), "task": task}
    for what, recorded in theirs.items():
        if recorded != ours[what]:
            raise UsageError(
                f"cannot go on with {trace.path}, because it is the trace of another workflow: its {what} is not the same",
                kind="usage",
                hint="give each workflow and task a file of its own",
            )
