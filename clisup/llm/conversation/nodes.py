"""A conversation as a graph of nodes: turns, in them steps, in those what was said and which tools and sub-agents were called.

Every node has an `id`, the time `at` which it began, and two marks that say what the model goes on seeing of it:

    include_in_context   summary      what is sent
    True                 None         all of it
    True                 a text       the text in its place
    False                any          nothing

An edit changes marks and never what happened, so that a saved conversation still holds all of it. Nodes are frozen: `edited`
gives new turns.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clisup.llm.chat import Cost, FinishReason
from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock
from clisup.llm.schemas import Options
from clisup.model.usage import Usage

__all__ = ["AgentPolicy", "Node", "Said", "Step", "SubAgentDelegation", "ToolInteraction", "Turn", "edited", "walk"]

_HANDED_BACK = re.compile(
    r"^\[Subagent hand-back\] .*?The report follows:\n(.*?)(?:\nagentId: [^\n]*(?:\n<usage>.*)?)?\Z",
    re.DOTALL | re.MULTILINE,
)
Outcome = Literal["completed", "failed", "interrupted"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentPolicy(Options):
    """How much of a sub-agent's work the model that called it goes on seeing, once `SummarizeSubAgentChatter` gets to it.

    `whole`: its call and its report, as they were. `transcript`: the report, and before it what it said and did, each cut.
    `summary`: the report, cut. `nothing`: neither call nor report. `max_chars` bounds what `transcript` and `summary` leave.
    """

    keep: Literal["whole", "transcript", "summary", "nothing"] = "summary"
    max_chars: int = Field(default=600, ge=160)


class _Node(_Frozen):
    id: str
    at: str = ""
    """When it began: RFC 3339, UTC."""
    ended_at: str | None = None
    include_in_context: bool = True
    summary: str | None = None


class _AnyCall(_Node):
    type: str
    name: str
    input: dict[str, Any] = Field(default_factory=dict)
    result: ToolResultBlock | None = None
    ours: bool = False
    """A tool of the program's own, rather than one of the CLI's."""

    @property
    def failed(self) -> bool:
        """It answered with an error, or not at all."""
        return self.result is None or self.result.is_error


class ToolInteraction(_AnyCall):
    """A tool was called and answered. `id` is the call's. `result` is None where the turn ended before there was one."""

    type: Literal["tool_interaction"] = "tool_interaction"

    @property
    def essence(self) -> tuple[str, dict[str, Any], str, bool]:
        """What two backends agree on for the same call: name, input, the result's text, whether it is an error."""
        return self.name, self.input, "" if self.result is None else self.result.text, self.failed


class SubAgentDelegation(_AnyCall):
    """A sub-agent was given a task. `id` is that of the call that made it, `result` its report; `steps` are its own work, which
    the model that called it never saw. A sub-agent of its own is a delegation within its steps.

    `policy` is its own; None: that of the `SummarizeSubAgentChatter` which comes to it.
    """

    type: Literal["delegation"] = "delegation"
    description: str = ""
    state: str | None = None
    """What the CLI last said of the task: `running`, or how it ended."""
    policy: AgentPolicy | None = None
    steps: tuple[Step, ...] = ()

    @property
    def report(self) -> str:
        """The sub-agent's own words, without the frame that claude puts around them for the model (2.1.330)."""
        text = "" if self.result is None else self.result.text
        framed = _HANDED_BACK.search(text)
        return textwrap.dedent(framed[1]).strip() if framed else text

    @property
    def agent(self) -> str:
        """Which sub-agent: claude's `subagent_type`, else the tool's name."""
        kind = self.input.get("subagent_type")
        return kind if isinstance(kind, str) and kind else self.name


Call = ToolInteraction | SubAgentDelegation
Said = Annotated[TextBlock | ThinkingBlock | ToolInteraction | SubAgentDelegation, Field(discriminator="type")]


class Step(_Frozen):
    """One message of the model's: what it said, and what it called with that, in order. Calls of one step ran side by side."""

    said: tuple[Said, ...] = ()

    @property
    def text(self) -> str:
        """Its texts as one."""
        return "".join(part.text for part in self.said if isinstance(part, TextBlock))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tools and sub-agents that it called."""
        return tuple(part for part in self.said if isinstance(part, ToolInteraction | SubAgentDelegation))


class Turn(_Node):
    """A prompt and all that came of it. A `summary` stands for the steps; the prompt is sent as it was.

    `usage` and `cost` are what is known of them. `error` says why a turn that did not complete did not, `error_kind` as in
    docs/errors.md. `cache`: a part that stays as it is ends with this turn (`to_wire_messages("anthropic")` marks it).
    """

    type: Literal["turn"] = "turn"
    prompt: Message
    steps: tuple[Step, ...] = ()
    outcome: Outcome = "completed"
    finish_reason: FinishReason = FinishReason.UNKNOWN
    model: str | None = None
    usage: Usage = Usage()
    cost: Cost | None = None
    structured: Any = None
    session_id: str | None = None
    turn_id: str | None = None
    error: str | None = None
    error_kind: str | None = None
    cache: bool = False

    @property
    def text(self) -> str:
        """The model's last word: the text of the last step that has one."""
        return next((step.text for step in reversed(self.steps) if step.text), "")

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every tool and sub-agent that the model itself called; those of sub-agents are in the delegations."""
        return tuple(call for step in self.steps for call in step.calls)


Node = Turn | ToolInteraction | SubAgentDelegation


def walk(turns: Sequence[Turn]) -> Iterator[Node]:
    """Every node, each before those within it, in order."""
    for turn in turns:
        yield turn
        yield from _within(turn.steps)


def _within(steps: Sequence[Step]) -> Iterator[Call]:
    for step in steps:
        for call in step.calls:
            yield call
            if isinstance(call, SubAgentDelegation):
                yield from _within(call.steps)


def edited(turns: Sequence[Turn], node_id: str, **changes: Any) -> tuple[Turn, ...]:
    """The turns with the node of this id changed, at whatever depth: `edited(turns, "call-7", include_in_context=False)`.

    Raises `InvalidRequest` where no node has the id or a node has no such field.
    """
    found = next((node for node in walk(turns) if node.id == node_id), None)
    if found is None:
        raise InvalidRequest(
            f"cannot edit node {node_id!r}, because the conversation has none of this id",
            kind="invalid_request",
            hint="walk(conversation.turns) gives all nodes",
        )
    if unknown := sorted(set(changes) - set(type(found).model_fields)):
        raise InvalidRequest(
            f"cannot change {', '.join(unknown)} of node {node_id!r}, because a {type(found).__name__} has no such field",
            kind="invalid_request",
        )
    changed = type(found).model_validate({**dict(found), **changes})
    if isinstance(changed, Turn):
        return tuple(changed if turn.id == node_id else turn for turn in turns)
    return tuple(with_calls(turn, lambda call: changed if call.id == node_id else call, deep=True) for turn in turns)


def with_calls(turn: Turn, change: Callable[[Call], Call], *, deep: bool = False) -> Turn:
    """The turn with each of its calls changed; `deep`: those of its sub-agents, too, the innermost first.

    The turn itself where nothing changes.
    """
    steps = _changed(turn.steps, change, deep)
    return turn if steps is turn.steps else turn.model_copy(update={"steps": steps})


def _changed(steps: tuple[Step, ...], change: Callable[[Call], Call], deep: bool) -> tuple[Step, ...]:
    new = tuple(_changed_step(step, change, deep) for step in steps)
    return steps if all(a is b for a, b in zip(new, steps, strict=True)) else new


def _changed_step(step: Step, change: Callable[[Call], Call], deep: bool) -> Step:
    said = tuple(
        _changed_call(part, change, deep) if isinstance(part, ToolInteraction | SubAgentDelegation) else part
        for part in step.said
    )
    return step if all(a is b for a, b in zip(said, step.said, strict=True)) else Step(said=said)


def _changed_call(call: Call, change: Callable[[Call], Call], deep: bool) -> Call:
    if deep and isinstance(call, SubAgentDelegation):
        steps = _changed(call.steps, change, deep)
        if steps is not call.steps:
            call = call.model_copy(update={"steps": steps})
    return change(call)
