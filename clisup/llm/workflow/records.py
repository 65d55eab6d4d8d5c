"""Records of a workflow's trace, a line of JSON each, and the progress that they add up to. Pure.

The first line is `workflow_started`, with format and version. Each stage of each round has a `stage_started`, its
`step_completed`s, and a `stage_completed` or `stage_failed`; a stage may start several times. `workflow_paused` is the reason of a
stop that another run can continue, `workflow_completed` the last line. Readers ignore unknown types and fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypedDict, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.answers import Cost
from clisup.llm.budget import Spent
from clisup.llm.failures import usage_error
from clisup.llm.messages import Message
from clisup.model.usage import Usage

VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    at: str
    """Time of writing: RFC 3339, UTC."""


class AttemptPlace(TypedDict):
    """Place of a record: the attempt at a stage in a round."""

    round: int
    stage: str
    attempt: int


class _OfAttempt(_Record):
    round: int
    stage: str
    attempt: int

    @property
    def place(self) -> AttemptPlace:
        return {"round": self.round, "stage": self.stage, "attempt": self.attempt}


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
        """Return the record without iterations, which are the workflow's rounds."""
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
        """Return the `Spent` of the record."""
        cost = None if self.cost_usd is None else Cost(self.cost_usd, self.cost_source or "estimated")
        return Spent(0, self.answers, self.usage, cost, self.unknown_tokens, self.unknown_usd, self.wall_s)


class WorkflowStarted(_Record):
    """First line of a trace."""

    type: Literal["workflow_started"] = "workflow_started"
    format: Literal["clisup.workflow"] = "clisup.workflow"
    version: int = VERSION
    run_id: str
    name: str
    stages: tuple[str, ...]
    task: JsonValue


class StageStarted(_OfAttempt):
    """Start of a stage. Its effects may begin now."""

    type: Literal["stage_started"] = "stage_started"


class StageCompleted(_OfAttempt):
    """Result of a stage, with its messages in the workflow's chat: prompts, answers, tool calls and results."""

    type: Literal["stage_completed"] = "stage_completed"
    result: JsonValue
    messages: tuple[Message, ...] = ()
    spent: SpentRecord = SpentRecord()
    model: str | None = None
    session_id: str | None = None
    turn_ids: tuple[str, ...] = ()


class StepCompleted(_OfAttempt):
    """Result of a part of a stage (`StageRun.step`), for later attempts. `spent` is the use of the attempt so far."""

    type: Literal["step_completed"] = "step_completed"
    step: str
    result: JsonValue
    messages: tuple[Message, ...] = ()
    spent: SpentRecord = SpentRecord()


class Failure(BaseModel):
    """Error, with its stable kind if it has one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    message: str


class StageFailed(_OfAttempt):
    """Failure or cancellation of a stage."""

    type: Literal["stage_failed"] = "stage_failed"
    error: Failure
    spent: SpentRecord = SpentRecord()


class WorkflowPaused(_Record):
    """Stop at a limit. With a higher limit, the same trace continues."""

    type: Literal["workflow_paused"] = "workflow_paused"
    reason: Literal["budget", "max_rounds"]
    message: str


class WorkflowCompleted(_Record):
    """End of the workflow."""

    type: Literal["workflow_completed"] = "workflow_completed"
    result: JsonValue
    rounds: int


Record = (
    WorkflowStarted | StageStarted | StepCompleted | StageCompleted | StageFailed | WorkflowPaused | WorkflowCompleted
)
_RECORDS: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])
_TYPES = frozenset(kind.model_fields["type"].default for kind in get_args(Record))


def as_json(value: object, what: str, hint: str = "return JSON") -> JsonValue:
    """Return the value as JSON. Raises `UsageError` for other objects, NaN and half a surrogate pair."""
    try:
        made: JsonValue = to_jsonable_python(value)
        json.dumps(made, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # also pydantic's own
        raise usage_error(f"{what} is not JSON: {error}", hint) from error
    return made


def to_line(record: Record) -> bytes:
    """Return a line of JSON with its line end."""
    return record.model_dump_json().encode() + b"\n"


def read_line(line: bytes) -> Record | None:
    """Return the record of a line, or None for a type of a later version. Raises `ValueError` for other lines."""
    value = json.loads(line)
    if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] not in _TYPES:
        return None
    return _RECORDS.validate_python(value)


WRONG_LINE = (ValueError, ValidationError, RecursionError)
"""Exceptions of `read_line` for a malformed line."""


@dataclass(slots=True)
class Progress:
    """State of a workflow by its trace."""

    started: WorkflowStarted
    completed: list[StageCompleted] = field(default_factory=list)
    failed: list[StageFailed] = field(default_factory=list)
    running: StageStarted | None = None
    """Stage without an end."""
    steps: list[StepCompleted] = field(default_factory=list)
    """Finished parts of the next stage, by all its attempts."""
    paused: WorkflowPaused | None = None
    ended: WorkflowCompleted | None = None

    @property
    def state(self) -> Literal["done", "budget", "max_rounds", "failed", "running"]:
        """State by the trace. A `running` workflow may have died since."""
        if self.ended is not None:
            return "done"
        if self.paused is not None:
            return self.paused.reason
        if self.running is None and self.attempts:
            return "failed"
        return "running"

    def in_order(self) -> list[StageCompleted | StageFailed | StageStarted]:
        """Return all attempts at stages in order, the open one last."""
        ended: list[StageCompleted | StageFailed | StageStarted] = [*self.completed, *self.failed]
        ended.sort(key=lambda one: (one.round, self.started.stages.index(one.stage), one.attempt))
        return ended if self.running is None else [*ended, self.running]

    @property
    def next(self) -> tuple[int, int]:
        """Round, from 1, and index of the next stage."""
        rounds, stage = divmod(len(self.completed), len(self.started.stages))
        return rounds + 1, stage

    @property
    def attempts(self) -> int:
        """Number of attempts at the next stage so far."""
        round_, index = self.next
        where = (round_, self.started.stages[index])
        failed = [one.attempt for one in self.failed if (one.round, one.stage) == where]
        running = [self.running.attempt] if self.running and (self.running.round, self.running.stage) == where else []
        return max([*failed, *running], default=0)

    def rounds(self) -> list[JsonObject]:
        """Return the results as JSON, by round and stage. The last round may be incomplete."""
        count = len(self.started.stages)
        return [
            {one.stage: one.result for one in self.completed[start : start + count]}
            for start in range(0, len(self.completed), count)
        ]

    @property
    def spent(self) -> Spent:
        """Use of all ended stages. The use of a crashed stage is unknown."""
        parts: Sequence[StageCompleted | StageFailed] = [*self.completed, *self.failed]
        total = sum((one.spent.spent() for one in parts), Spent())
        return replace(total, iterations=-(-len(self.completed) // len(self.started.stages)))


def progress_of(records: Iterable[Record], *, name: str) -> Progress:
    """Fold the lines of a trace; `name` is for errors. Raises `UsageError` for lines that do not fit together."""
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
    """Add a line. Raises `UsageError` for a line out of order."""
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
    return usage_error(f"{name} is not a trace of a workflow: {why}", hint)
