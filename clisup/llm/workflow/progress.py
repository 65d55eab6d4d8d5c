"""Where a workflow stands, by the lines of its trace. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clisup.errors import UsageError
from clisup.llm.spending import Spent
from clisup.llm.workflow.records import (
    VERSION,
    Record,
    StageCompleted,
    StageFailed,
    StageStarted,
    StepCompleted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowStarted,
)

__all__ = ["Progress", "fold", "progress_of"]


@dataclass(slots=True)
class Progress:
    """Where a workflow stands, by its trace."""

    started: WorkflowStarted
    completed: list[StageCompleted] = field(default_factory=list)
    failed: list[StageFailed] = field(default_factory=list)
    running: StageStarted | None = None
    """A stage that began and of which no end is told."""
    steps: list[StepCompleted] = field(default_factory=list)
    """The parts of the next stage that are done, by all attempts at it."""
    paused: WorkflowPaused | None = None
    ended: WorkflowCompleted | None = None

    @property
    def state(self) -> Literal["done", "budget", "max_rounds", "failed", "running"]:
        """As far as the trace tells: what is `running` by it may have died since."""
        if self.ended is not None:
            return "done"
        if self.paused is not None:
            return self.paused.reason
        if self.running is None and self.attempts:
            return "failed"
        return "running"

    def in_order(self) -> list[StageCompleted | StageFailed | StageStarted]:
        """All attempts at stages as they came, the open one last."""
        ended: list[StageCompleted | StageFailed | StageStarted] = [*self.completed, *self.failed]
        ended.sort(key=lambda one: (one.round, self.started.stages.index(one.stage), one.attempt))
        return ended if self.running is None else [*ended, self.running]

    @property
    def next(self) -> tuple[int, int]:
        """The round, from 1, and the index of the stage that is to run."""
        rounds, stage = divmod(len(self.completed), len(self.started.stages))
        return rounds + 1, stage

    @property
    def attempts(self) -> int:
        """How often the next stage was begun already."""
        round_, index = self.next
        where = (round_, self.started.stages[index])
        failed = [one.attempt for one in self.failed if (one.round, one.stage) == where]
        running = [self.running.attempt] if self.running and (self.running.round, self.running.stage) == where else []
        return max([*failed, *running], default=0)

    def rounds(self) -> list[dict[str, Any]]:
        """The results as JSON, by round and stage; the last round may be begun only."""
        count = len(self.started.stages)
        return [
            {one.stage: one.result for one in self.completed[start : start + count]}
            for start in range(0, len(self.completed), count)
        ]

    @property
    def spent(self) -> Spent:
        """By all stages that ended, well or not. A crash leaves no word of what its stage took."""
        parts: Sequence[StageCompleted | StageFailed] = [*self.completed, *self.failed]
        total = sum((one.spent.spent() for one in parts), Spent())
        return Spent(
            -(-len(self.completed) // len(self.started.stages)),
            total.answers,
            total.usage,
            total.cost,
            total.unknown_tokens,
            total.unknown_usd,
            total.wall_s,
        )


def progress_of(records: Iterable[Record], *, name: str) -> Progress:
    """Put the lines of a trace together. `name` is the file's, for errors. Raises `UsageError` where they do not fit together."""
    lines = iter(records)
    started = next(lines, None)
    if not isinstance(started, WorkflowStarted):
        raise _wrong(name, "it does not begin as a trace of a workflow")
    if started.version > VERSION:
        raise _wrong(name, f"its version is {started.version}, and this clisup reads {VERSION}", "use a newer clisup")
    if not started.stages:
        raise _wrong(name, "it names no stages")
    progress = Progress(started)
    for record in lines:
        fold(progress, record, name)
    return progress


def fold(progress: Progress, record: Record, name: str) -> None:
    """Take in one more line. Raises `UsageError` where it does not come next."""
    if isinstance(record, WorkflowStarted):
        raise _wrong(name, "it begins twice")
    if isinstance(record, WorkflowCompleted):
        progress.ended = record
        return
    if isinstance(record, WorkflowPaused):
        progress.paused = record
        return
    round_, index = progress.next
    if (record.round, record.stage) != (round_, progress.started.stages[index]):
        expected = f"round {round_}, stage {progress.started.stages[index]}"
        raise _wrong(name, f"round {record.round}, stage {record.stage} stands where {expected} should")
    progress.paused = None
    if isinstance(record, StepCompleted):
        if progress.running is None or progress.running.attempt != record.attempt:
            raise _wrong(name, f"a step of {record.stage} stands where no such stage runs")
        progress.steps.append(record)
        return
    progress.running = record if isinstance(record, StageStarted) else None
    if isinstance(record, StageCompleted):
        progress.completed.append(record)
        progress.steps = []
    elif isinstance(record, StageFailed):
        progress.failed.append(record)


def _wrong(name: str, why: str, hint: str = "give a file that a workflow wrote") -> UsageError:
    return UsageError(f"cannot read {name} as a trace, because {why}", kind="usage", hint=hint)
