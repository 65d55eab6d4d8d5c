"""The lines of a workflow's trace, and what they say together. Pure.

The first line is `workflow_started` and has the format's name and version. Then comes, for each stage of each round, a `stage_started`
and a `stage_completed` or `stage_failed`; a stage may be begun several times. `workflow_paused` says why a run stopped where another
one may go on, `workflow_completed` is the last line. Readers pass over types and fields that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from clisup.core.usage import Usage
from clisup.errors import UsageError
from clisup.llm.chat import Cost
from clisup.llm.messages import Message
from clisup.llm.spending import Spent

__all__ = [
    "FORMAT",
    "VERSION",
    "Failure",
    "Progress",
    "Record",
    "SpentRecord",
    "StageCompleted",
    "StageFailed",
    "StageStarted",
    "WorkflowCompleted",
    "WorkflowPaused",
    "WorkflowStarted",
    "fold",
    "progress_of",
    "read_line",
    "to_line",
]

FORMAT, VERSION = "clisup.workflow", 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    at: str
    """When it was written: RFC 3339, UTC."""


class SpentRecord(BaseModel):
    """`Spent` as JSON."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    answers: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = None
    cost_source: Literal["reported", "estimated"] | None = None
    unknown_tokens: int = 0
    unknown_usd: int = 0
    wall_s: float = 0.0

    @classmethod
    def of(cls, spent: Spent) -> SpentRecord:
        """Without the iterations: those of a workflow are its rounds."""
        cost = spent.cost
        return cls(
            answers=spent.answers,
            usage=spent.usage,
            cost_usd=cost.usd if cost else None,
            cost_source=cost.source if cost else None,
            unknown_tokens=spent.unknown_tokens,
            unknown_usd=spent.unknown_usd,
            wall_s=round(spent.wall_s, 3),
        )

    def spent(self) -> Spent:
        """Back again."""
        cost = None if self.cost_usd is None else Cost(self.cost_usd, self.cost_source or "estimated")
        return Spent(0, self.answers, self.usage, cost, self.unknown_tokens, self.unknown_usd, self.wall_s)


class WorkflowStarted(_Record):
    """The first line."""

    type: Literal["workflow_started"] = "workflow_started"
    format: Literal["clisup.workflow"] = "clisup.workflow"
    version: int = VERSION
    run_id: str
    name: str
    stages: tuple[str, ...]
    task: JsonValue


class StageStarted(_Record):
    """A stage is about to run, for the `attempt`th time: what it does to the world may begin now."""

    type: Literal["stage_started"] = "stage_started"
    round: int
    stage: str
    attempt: int


class StageCompleted(_Record):
    """What a stage gave, and all that was said in the workflow's chat for it: prompts, answers, tool calls and results."""

    type: Literal["stage_completed"] = "stage_completed"
    round: int
    stage: str
    attempt: int
    result: JsonValue
    messages: tuple[Message, ...] = ()
    spent: SpentRecord = SpentRecord()
    model: str | None = None
    session_id: str | None = None
    turn_ids: tuple[str, ...] = ()


class Failure(BaseModel):
    """An error by its stable kind, where it has one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    message: str


class StageFailed(_Record):
    """A stage raised, or was cancelled."""

    type: Literal["stage_failed"] = "stage_failed"
    round: int
    stage: str
    attempt: int
    error: Failure
    spent: SpentRecord = SpentRecord()


class WorkflowPaused(_Record):
    """It stopped at a limit; with more of it the same trace goes on."""

    type: Literal["workflow_paused"] = "workflow_paused"
    reason: Literal["budget", "max_rounds"]
    message: str


class WorkflowCompleted(_Record):
    """It is done."""

    type: Literal["workflow_completed"] = "workflow_completed"
    result: JsonValue
    rounds: int


Record = WorkflowStarted | StageStarted | StageCompleted | StageFailed | WorkflowPaused | WorkflowCompleted
_RECORDS: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])
_TYPES = frozenset(
    ["workflow_started", "stage_started", "stage_completed", "stage_failed", "workflow_paused", "workflow_completed"]
)


def to_line(record: Record) -> bytes:
    """One line of JSON with its line end."""
    return record.model_dump_json().encode() + b"\n"


def read_line(line: bytes) -> Record | None:
    """One line; None: a type of a later version. Raises `ValueError` where it is none at all."""
    value = json.loads(line)
    if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] not in _TYPES:
        return None
    return _RECORDS.validate_python(value)


@dataclass(slots=True)
class Progress:
    """Where a workflow stands, by its trace."""

    started: WorkflowStarted
    completed: list[StageCompleted] = field(default_factory=list)
    failed: list[StageFailed] = field(default_factory=list)
    running: StageStarted | None = None
    """A stage that began and of which no end is told."""
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
    progress.running = record if isinstance(record, StageStarted) else None
    if isinstance(record, StageCompleted):
        progress.completed.append(record)
    elif isinstance(record, StageFailed):
        progress.failed.append(record)


def _wrong(name: str, why: str, hint: str = "give a file that a workflow wrote") -> UsageError:
    return UsageError(f"cannot read {name} as a trace, because {why}", kind="usage", hint=hint)


WRONG_LINE = (ValueError, ValidationError, RecursionError)
"""What `read_line` raises for a line that is none."""
