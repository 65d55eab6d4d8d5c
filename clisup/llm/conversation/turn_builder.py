"""Builder of a turn's nodes from the events of a stream. Pure: times and ids are arguments.

A `TurnBuilder` takes the `StreamEvent`s of one answer. Events with a `parent` belong to the sub-agent of the call with this id. Its
work becomes the steps of a `SubAgentDelegation`, at any depth. Calls without results and text without its message are kept, so
that a failed or interrupted turn is in the conversation as far as it came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clisup.client.raw import JsonObject
from clisup.llm.answers import (
    Completion,
    Finished,
    MessageDone,
    Retracted,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
)
from clisup.llm.conversation.nodes import AgentPolicy, Call, Outcome, Step, SubAgentDelegation, ToolInteraction, Turn
from clisup.llm.failures import LLMError
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock


@dataclass(slots=True)
class _KnownCall:
    """Known parts of a call. A call without a name is known only by its sub-agent's events."""

    id: str
    parent: str | None
    name: str = ""
    input: JsonObject = field(default_factory=dict)
    at: str = ""
    ended_at: str | None = None
    result: ToolResultBlock | None = None
    ours: bool = False
    state: str | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class _CallPlace:
    """Place of a call in a step."""

    id: str


@dataclass(slots=True)
class _Thread:
    """Steps of the model or of one sub-agent. `answered`: a call of the open step has a result."""

    steps: list[list[TextBlock | ThinkingBlock | _CallPlace]] = field(default_factory=list)
    pending: list[TextDelta | ThinkingDelta] = field(default_factory=list)
    answered: bool = False

    def say(self, part: TextBlock | ThinkingBlock | _CallPlace) -> None:
        """Add a part to the open step, or after a result to a new one."""
        if self.answered or not self.steps:
            self.steps.append([])
            self.answered = False
        self.steps[-1].append(part)

    def holds(self, call: str) -> bool:
        return any(_CallPlace(call) in step for step in self.steps)


class TurnBuilder:
    """Builder of one turn, with its `id` and time `at`. `agents` are policies of sub-agents by kind.

    Some CLIs reuse the ids of calls in each turn. A call with an id in `taken` gets another one.
    """

    def __init__(
        self,
        prompt: Message,
        *,
        id: str,  # noqa: A002 - the field's own name
        at: str,
        agents: Mapping[str, AgentPolicy] | None = None,
        taken: Collection[str] = (),
    ) -> None:
        self._prompt, self._id, self._at = prompt, id, at
        self._agents, self._taken = dict(agents or {}), set(taken)
        self._threads: dict[str | None, _Thread] = {None: _Thread()}
        self._calls: dict[str, _KnownCall] = {}
        self._completion: Completion | None = None
        self.strays: dict[str, ToolResultBlock] = {}
        """Results of calls of an earlier stream of the same turn."""

    def add(self, event: StreamEvent) -> None:
        """Add the next event."""
        if isinstance(event, TextDelta | ThinkingDelta):
            self._thread(event.parent).pending.append(event)
        elif isinstance(event, MessageDone):
            self._message(event)
        elif isinstance(event, ToolStarted):
            self._start(event)
        elif isinstance(event, ToolEnded):
            self._end(event.result, event.at)
        elif isinstance(event, TaskChanged):
            self._task(event)
        elif isinstance(event, Retracted):
            if event.all:  # the answer starts again, which means that no tool was called
                self._threads, self._calls = {None: _Thread()}, {}
            for thread in self._threads.values():
                thread.pending.clear()
        elif isinstance(event, Finished):
            self._completion = event.completion

    def add_message(self, message: Message) -> None:
        """Add a whole message without a stream. Each message of the model is a step."""
        if message.role == "assistant":
            self._threads[None].answered = True
        self._message(MessageDone(message))

    def turn(self, *, ended_at: str, error: LLMError | None = None, session_id: str | None = None) -> Turn:
        """Return the turn so far: `completed` after `Finished`, `failed` with an `error`, else `interrupted`.

        A turn that failed without any step is left out of the context, because the next prompt may repeat it.
        """
        done = self._completion
        if done is not None:
            self._regroup(done)
            self._threads[None].pending.clear()
        for thread in self._threads.values():
            _flush(thread)
        names = self._unique_ids()
        steps = self._steps(None, names)
        outcome: Outcome = "completed" if done is not None else "interrupted" if error is None else "failed"
        turn = Turn(
            id=self._id,
            at=self._at,
            ended_at=ended_at,
            prompt=self._prompt,
            steps=steps,
            outcome=outcome,
            include_in_context=outcome == "completed" or bool(steps),
            session_id=(done.session_id if done else None) or session_id,
            error=None if error is None else error.message,
            error_kind=None if error is None else error.kind,
        )
        if done is None:
            return turn
        told = {name: getattr(done, name) for name in ("finish_reason", "usage", "cost", "structured", "turn_id")}
        return turn.model_copy(update={**told, "model": str(done.model)})

    # -- events

    def _thread(self, parent: str | None) -> _Thread:
        if parent is not None and parent not in self._calls:
            self._calls[parent] = _KnownCall(parent, None)  # an unannounced call, known by its sub-agent
            self._threads[None].say(_CallPlace(parent))
        return self._threads.setdefault(parent, _Thread())

    def _message(self, event: MessageDone) -> None:
        if event.message.role == "user":
            for block in event.message.content:
                if isinstance(block, ToolResultBlock):
                    self._end(block, event.at)
            return
        thread = self._thread(event.parent)
        thread.pending.clear()
        told = {call.id for call in event.message.tool_uses}
        if thread.steps and not thread.answered:  # calls announced before their message take their place in the message
            thread.steps[-1] = [p for p in thread.steps[-1] if not (isinstance(p, _CallPlace) and p.id in told)]
        for block in event.message.content:
            if isinstance(block, TextBlock | ThinkingBlock):
                thread.say(block)
            elif isinstance(block, ToolUseBlock):
                self._use(block, event.parent, event.at)

    def _use(self, block: ToolUseBlock, parent: str | None, at: str) -> None:
        call = self._calls.setdefault(block.id, _KnownCall(block.id, parent))
        if not call.name:
            call.name, call.input, call.at = block.name, dict(block.input), at
        if not self._threads[call.parent].holds(block.id):
            self._thread(call.parent).say(_CallPlace(block.id))

    def _start(self, event: ToolStarted) -> None:
        thread = self._thread(event.parent)
        call = self._calls.setdefault(event.id, _KnownCall(event.id, event.parent))
        call.name, call.input, call.ours = event.name, dict(event.input), event.ours
        call.at = event.at or call.at
        if not self._threads[call.parent].holds(event.id):
            thread.say(_CallPlace(event.id))

    def _end(self, result: ToolResultBlock, at: str) -> None:
        call = self._calls.get(result.tool_use_id)
        if call is None:
            self.strays.setdefault(result.tool_use_id, result)
        if call is None or call.result is not None:
            return  # a result needs its call, and the model has read the first of two results
        call.result, call.ended_at = result, at or None
        thread = self._threads[call.parent]
        if thread.steps and _CallPlace(call.id) in thread.steps[-1]:
            thread.answered = True

    def _task(self, event: TaskChanged) -> None:
        call = self._calls.get(event.tool_use_id or "")
        if call is None:
            return
        call.state = event.state
        call.description = call.description or event.description  # the last update's description is no name
        if event.report is not None:  # the call's own result only reported the start
            call.result, call.ended_at = ToolResultBlock(tool_use_id=call.id, content=event.report), event.at or None

    # -- the turn

    def _regroup(self, done: Completion) -> None:
        """Group blocks by the completion's messages. Times and sub-agents come from the events."""
        messages = done.messages or ((done.message,) if not self._threads[None].steps else ())
        told = {call.id for message in messages for call in message.tool_uses}
        known = {call.id for call in self._calls.values() if call.parent is None}
        if not messages or not known <= told:
            return
        self._threads[None] = _Thread()
        for message in messages:
            self.add_message(message)

    def _unique_ids(self) -> dict[str, str]:
        """Return the node's id for each call's id."""
        names: dict[str, str] = {}
        for id_ in self._calls:
            name, n = id_, 1
            while name in self._taken:
                n += 1
                name = f"{id_}-{n}"
            self._taken.add(name)
            names[id_] = name
        return names

    def _steps(self, parent: str | None, names: Mapping[str, str]) -> tuple[Step, ...]:
        """Return the steps of a thread. A parent comes before its calls, so the recursion ends."""
        thread = self._threads.get(parent, _Thread())
        made = [
            tuple(self._node(part.id, names) if isinstance(part, _CallPlace) else part for part in step)
            for step in thread.steps
        ]
        return tuple(Step(said=said) for said in made if said)

    def _node(self, id_: str, names: Mapping[str, str]) -> Call:
        call = self._calls[id_]
        result = call.result
        if result is not None and names[id_] != id_:
            result = result.model_copy(update={"tool_use_id": names[id_]})
        shared: dict[str, Any] = {
            "id": names[id_], "at": call.at, "ended_at": call.ended_at, "name": call.name, "input": call.input,
            "result": result, "ours": call.ours, "include_in_context": bool(call.name),
        }  # fmt: skip
        if call.state is None and id_ not in self._threads:
            return ToolInteraction(**shared)
        made = SubAgentDelegation(
            **shared,
            steps=self._steps(id_, names),
            description=call.description,
            state=call.state,
        )
        return made.model_copy(update={"policy": self._agents.get(made.agent, self._agents.get(made.name))})


def _flush(thread: _Thread) -> None:
    """Keep text without its whole message. Drop thinking, which has no signature yet."""
    text = "".join(delta.text for delta in thread.pending if isinstance(delta, TextDelta))
    thread.pending.clear()
    if text:
        thread.say(TextBlock(text=text))


def turns_of(messages: Sequence[Message], *, at: str = "", prefix: str = "turn") -> tuple[Turn, ...]:
    """Return another conversation's messages as turns. Each message of the user with more than tool results begins one.

    Messages before the first such message get an empty prompt. Ids are `turn-1`, `turn-2` and so on.
    """
    parts: list[tuple[Message, list[Message]]] = []
    for message in messages:
        own = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
        if message.role == "user" and own:
            results = tuple(block for block in message.content if isinstance(block, ToolResultBlock))
            if results and parts:
                parts[-1][1].append(Message(role="user", content=results))
            parts.append((Message(role="user", content=own), []))
        else:
            if not parts:
                parts.append((Message(role="user", content=()), []))
            parts[-1][1].append(message)
    turns: list[Turn] = []
    taken: set[str] = set()
    for n, (prompt, answer) in enumerate(parts, 1):
        builder = TurnBuilder(prompt, id=f"{prefix}-{n}", at=at, taken=taken)
        for message in answer:
            builder.add_message(message)
        turn = builder.turn(ended_at=at).model_copy(update={"outcome": "completed", "include_in_context": True})
        taken |= {call.id for call in turn.calls}
        turns.append(turn)
    return tuple(turns)
