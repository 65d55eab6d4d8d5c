"""Typed results of the daemon, and answers to approvals. Nothing here waits, but importing loads pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, WorldError

__all__ = [
    "Answer",
    "Approval",
    "Decision",
    "answering",
    "by_handler",
    "read",
    "settled",
]

_T = TypeVar("_T")


class Approval(BaseModel):
    """Tool that waits for permission to run with `input`. `suggestions` and `reason` are the CLI's own.

    If the input is too large for an event, `input` is shortened and `blob` names the whole. `seq` is that of the
    `approval_requested`, `requested_at` is RFC 3339.
    """

    model_config = ConfigDict(frozen=True)

    approval_id: str
    session_id: str
    turn_id: str | None = None
    tool_name: str
    input: JsonObject
    suggestions: list[JsonObject] = []
    requested_at: str | None = None
    seq: int
    tool_use_id: str | None = None
    reason: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to an approval. The model gets the `message` of a deny. `updated_input` replaces the tool's input on an allow; its
    `answers` or `content` answer questions and elicitations. With `remember` the CLI does not ask for similar calls again.
    `option` is the `optionId` of a suggestion, for an agent that offers several answers."""

    decision: Literal["allow", "deny"]
    message: str | None = None
    updated_input: JsonObject | None = None
    remember: bool | None = None
    option: str | None = None

    def params(self) -> JsonObject:
        """Return the params of `approval/respond`."""
        names = ("decision", "message", "updated_input", "remember", "option")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


Decision = Answer | Literal["allow", "deny"] | None
"""Result of a handler of approvals. None leaves the answer to other clients. An elicitation needs an `Answer` to be accepted."""


def read(type_: type[_T], raw: Any, method: str) -> _T:
    """Validate the answer to `method` as `type_`, a model or a list of models. Raise `WorldError` for another shape."""
    try:
        if isinstance(type_, type) and issubclass(type_, BaseModel):
            return type_.model_validate(raw)
        return TypeAdapter(type_).validate_python(raw)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "all of it"
        raise WorldError(
            f"cannot understand the daemon's answer to {method}, because {where} is not of the expected type",
            hint="the daemon may be of another version: compare `clisup version` with `clisup status`",
        ) from None


def answering(approval: Approval | str, decision: Decision, session_id: str | None = None) -> JsonObject | None:
    """Return the params of `approval/respond`, or None for no answer."""
    if decision is None:
        return None
    answer = decision if isinstance(decision, Answer) else Answer(decision)
    id_, whose = (approval, session_id) if isinstance(approval, str) else (approval.approval_id, approval.session_id)
    return {"approval_id": id_, **({"session_id": whose} if whose is not None else {}), **answer.params()}


def by_handler(approval: Approval, decision: Decision) -> Decision:
    """Return the decision of a handler. The word `allow` declines an elicitation, and questions of codex and qwen: it has no values."""
    name = approval.tool_name
    asks_values = name in ("elicitation", "request_user_input", "ask_user_question") or name.endswith("__elicitation")
    return "deny" if decision == "allow" and asks_values else decision


def settled(error: ClisupError) -> bool:
    """Tell whether an answer was refused because the approval is settled: another client was first, or the turn ended."""
    return error.data.get("kind_sent", error.kind) in ("approval_not_found", "approval_already_resolved")
