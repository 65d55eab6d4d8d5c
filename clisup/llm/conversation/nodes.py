"""A conversation as a graph of nodes: turns, their steps, and the tools and sub-agents that the steps called.

Every node has an `id`, the time `at` of its beginning, and two marks for the model's view:

    include_in_context   summary      the model sees
    True                 None         the whole node
    True                 a text       the text instead
    False                any          nothing

An edit changes marks and never the events, so a saved conversation stays complete. Nodes are frozen: `edited` returns new turns.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from clisup.client.raw import JsonObject
from clisup.llm.answers import Cost, FinishReason
from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import FrozenModel, Message, TextBlock, ThinkingBlock, ToolResultBlock
from clisup.llm.shapes import NamedOptions
from clisup.model.usage import Usage

_HANDED_BACK = re.compile(
    r"^\[Subagent hand-back\] .*?The report follows:\n(.*?)(?:\nagentId: [^\n]*(?:\n<usage>.*)?)?\Z",
    re.DOTALL | re.MULTILINE,
)
Outcome = Literal["completed", "failed", "interrupted"]


class AgentPolicy(NamedOptions):
    """Part of a sub-agent's work that stays in the context, for `SummarizeSubAgentChatter`.

    `whole`: the call and the report. `transcript`: the sub-agent's texts and calls and the report, each cut.
    `summary`: the report, cut. `nothing`: neither call nor report. `max_chars` bounds `transcript` and `summary`.
    """

    keep: Literal["whole", "transcript", "summary", "nothing"] = "summary"
    max_chars: int = Field(default=600, ge=160)


class _Node(FrozenModel):
    id: str
    at: str = ""
    """Time of the beginning: RFC 3339, UTC."""
    ended_at: str | None = None
    include_in_context: bool = True
    summary: str | None = None


class _AnyCall(_Node):
    type: str
    name: str
    input: JsonObject = Field(default_factory=dict)
    result: ToolResultBlock | None = None
    ours: bool = False
    """Whether the tool is the program's own, not the CLI's."""

    @property
    def failed(self) -> bool:
        """Return whether the call has an error as its result, or no result."""
        return self.result is None or self.result.is_error


class ToolInteraction(_AnyCall):
    """Tool call with its result. `id` is the call's. `result` is None if the turn ended before."""

    type: Literal["tool_interaction"] = "tool_interaction"

    @property
    def essence(self) -> tuple[str, JsonObject, str, bool]:
        """Parts that are the same on every backend: name, input, text of the result, and whether the call failed."""
        return self.name, self.input, "" if self.result is None else self.result.text, self.failed


class SubAgentDelegation(_AnyCall):
    """Task of a sub-agent. `id` is the id of its call, `result` its report.

    `steps` are the sub-agent's own work, which the calling model never saw. Its own sub-agents are delegations in these steps.
    `policy` is its own policy. The default is that of `SummarizeSubAgentChatter`.
    """

    type: Literal["delegation"] = "delegation"
    description: str = ""
    state: str | None = None
    """The CLI's last state of the task: `running`, or its end."""
    policy: AgentPolicy | None = None
    steps: tuple[Step, ...] = ()

    @property
    def report(self) -> str:
        """The sub-agent's own words, without claude's frame around them (2.1.330)."""
        text = "" if self.result is None else self.result.text
        framed = _HANDED_BACK.search(text)
        return textwrap.dedent(framed[1]).strip() if framed else text

    @property
    def agent(self) -> str:
        """Kind of the sub-agent: claude's `subagent_type`, or else the tool's name."""
        kind = self.input.get("subagent_type")
        return kind if isinstance(kind, str) and kind else self.name


Call = ToolInteraction | SubAgentDelegation
Said = Annotated[TextBlock | ThinkingBlock | ToolInteraction | SubAgentDelegation, Field(discriminator="type")]


class Step(FrozenModel):
    """One message of the model, with texts and calls in order. Calls of one step ran in parallel."""

    said: tuple[Said, ...] = ()

    @property
    def text(self) -> str:
        """The joined texts."""
        return "".join(part.text for part in self.said if isinstance(part, TextBlock))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The called tools and sub-agents."""
        return tuple(part for part in self.said if isinstance(part, ToolInteraction | SubAgentDelegation))


class Turn(_Node):
    """Prompt with its answer. A `summary` replaces the steps, and the prompt stays.

    `usage` and `cost` are the known parts. `error` and `error_kind` (docs/reference/errors.md) explain a turn that did not complete.
    `cache` marks the end of a part that stays the same (`to_wire_messages("anthropic")` sets a marker there).
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
        """The text of the last step with a text."""
        return next((step.text for step in reversed(self.steps) if step.text), "")

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls of the model itself. Calls of sub-agents are in the delegations."""
        return tuple(call for step in self.steps for call in step.calls)


Node = Turn | ToolInteraction | SubAgentDelegation


def walk(turns: Sequence[Turn]) -> Iterator[Node]:
    """Return every node, each before its inner nodes."""
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
    """Return the turns with one node changed, at any depth: `edited(turns, "call-7", include_in_context=False)`.

    Raises `InvalidRequest` for an unknown id or field.
    """
    found = next((node for node in walk(turns) if node.id == node_id), None)
    if found is None:
        raise InvalidRequest(
            f"the conversation has no node {node_id!r}",
            hint="walk(conversation.turns) returns all nodes",
        )
    if unknown := sorted(set(changes) - set(type(found).model_fields)):
        raise InvalidRequest(f"a {type(found).__name__} such as {node_id!r} has no field {', '.join(unknown)}")
    changed = type(found).model_validate({**dict(found), **changes})
    if isinstance(changed, Turn):
        return tuple(changed if turn.id == node_id else turn for turn in turns)
    return tuple(with_calls(turn, lambda call: changed if call.id == node_id else call, deep=True) for turn in turns)


def with_calls(turn: Turn, change: Callable[[Call], Call], *, deep: bool = False) -> Turn:
    """Return the turn with each call changed. `deep` includes calls of sub-agents, the innermost first.

    Return the turn itself if nothing changes.
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
