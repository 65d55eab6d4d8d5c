"""The lines of a workflow's trace. Pure; `progress` says what they mean together.

The first line is `workflow_started` and has the format's name and version. Then comes, for each stage of each round, a
`stage_started`, its `step_completed`s, and a `stage_completed` or `stage_failed`; a stage may be begun several times.
`workflow_paused` says why a run stopped where another one may go on, `workflow_completed` is the last line. Readers pass over
types and fields that they do not know.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from clisup.llm.chat import Cost
from clisup.llm.messages import Message
from clisup.llm.spending import Spent
from clisup.model.usage import Usage

__all__ = [
    "VERSION",
    "WRONG_LINE",
    "Failure",
    "Record",
    "SpentRecord",
    "StageCompleted",
    "StageFailed",
    "StageStarted",
    "StepCompleted",
    "WorkflowCompleted",
    "WorkflowPaused",
    "WorkflowStarted",
    "as_json",
    "read_line",
    "to_line",
]

VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    at: str
    """When it was written: RFC 3339, UTC."""


class _OfAttempt(_Record):
    round: int
    stage: str
    attempt: int


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


class StageStarted(_OfAttempt):
    """A stage is about to run, for the `attempt`th time: what it does to the world may begin now."""

    type: Literal["stage_started"] = "stage_started"


class StageCompleted(_OfAttempt):
    """What a stage gave, and all that was said in the workflow's chat for it: prompts, answers, tool calls and results."""

    type: Literal["stage_completed"] = "stage_completed"
    result: JsonValue
    messages: tuple[Message, ...] = ()
    spent: SpentRecord = SpentRecord()
    model: str | None = None
    session_id: str | None = None
    turn_ids: tuple[str, ...] = ()


class StepCompleted(_OfAttempt):
    """A part of a stage is done (`StageRun.step`): a later attempt takes its result from here. `spent` is by the attempt until here."""

    type: Literal["step_completed"] = "step_completed"
    step: str
    result: JsonValue
    messages: tuple[Message, ...] = ()
    spent: SpentRecord = SpentRecord()


class Failure(BaseModel):
    """An error by its stable kind, where it has one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    message: str


class StageFailed(_OfAttempt):
    """A stage raised, or was cancelled."""

    type: Literal["stage_failed"] = "stage_failed"
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


Record = (
    WorkflowStarted | StageStarted | StepCompleted | StageCompleted | StageFailed | WorkflowPaused | WorkflowCompleted
)
_RECORDS: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])
_TYPES = frozenset(
    [
        "workflow_started",
        "stage_started",
        "step_completed",
        "stage_completed",
        "stage_failed",
        "workflow_paused",
        "workflow_completed",
    ]
)


def as_json(value: object) -> JsonValue:
    """The value as a record has it. Raises `ValueError` for what JSON cannot carry: other objects, NaN, half of a surrogate pair."""
    made: JsonValue = to_jsonable_python(value)
    json.dumps(made, ensure_ascii=False, allow_nan=False).encode()
    return made


def to_line(record: Record) -> bytes:
    """One line of JSON with its line end."""
    return record.model_dump_json().encode() + b"\n"


def read_line(line: bytes) -> Record | None:
    """One line; None: a type of a later version. Raises `ValueError` where it is none at all."""
    value = json.loads(line)
    if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] not in _TYPES:
        return None
    return _RECORDS.validate_python(value)


WRONG_LINE = (ValueError, ValidationError, RecursionError)
"""What `read_line` raises for a line that is none."""
