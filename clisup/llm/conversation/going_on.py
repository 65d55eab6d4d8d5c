"""Turns that stop at calls of the caller's tools, and go on with their results: one turn in the conversation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clisup.llm.chat import FinishReason
from clisup.llm.conversation.context import messages_of
from clisup.llm.conversation.nodes import Call, SubAgentDelegation, Turn, with_calls
from clisup.llm.messages import Message, ToolResultBlock, ToolUseBlock
from clisup.llm.sound import sound

__all__ = ["going_on_with", "joined", "waiting_calls"]


def waiting_calls(turns: Sequence[Turn]) -> tuple[ToolUseBlock, ...]:
    """Return the calls of the last turn that wait for the caller's results."""
    if not turns or turns[-1].finish_reason is not FinishReason.TOOL_CALLS or turns[-1].outcome != "completed":
        return ()
    return tuple(
        ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in _calls(turns[-1]) if _open(call)
    )


def going_on_with(turns: Sequence[Turn], results: Mapping[str, ToolResultBlock]) -> tuple[tuple[Message, ...], Message]:
    """Return the history and the prompt for a chat that knows nothing of the turn: it ends with the calls, the prompt has the results."""
    told = _answered(turns[-1], results)
    *history, prompt = sound([*messages_of(turns[:-1]), told.prompt, *messages_of((told,), ended=False)])
    return tuple(history), prompt


def joined(before: Turn, after: Turn, results: Mapping[str, ToolResultBlock]) -> Turn:
    """Return the turn with what came of it after the results."""
    costs = [turn.cost for turn in (before, after) if turn.cost is not None]
    told = _answered(before, results)
    return after.model_copy(
        update={
            "id": before.id,
            "at": before.at,
            "prompt": before.prompt,
            "cache": before.cache,
            "steps": (*told.steps, *after.steps),
            "include_in_context": True,
            "usage": before.usage + after.usage,
            "cost": costs[0] + costs[1] if len(costs) == 2 else costs[0] if costs else None,
            "model": after.model or before.model,
            "session_id": after.session_id or before.session_id,
            "turn_id": after.turn_id or before.turn_id,
        }
    )


def _answered(turn: Turn, results: Mapping[str, ToolResultBlock]) -> Turn:
    def answered(call: Call) -> Call:
        result = results.get(call.id)
        return call if result is None or not _open(call) else call.model_copy(update={"result": result})

    return with_calls(turn, answered, deep=True)


def _open(call: Call) -> bool:
    return call.result is None and bool(call.name)


def _calls(turn: Turn) -> Iterator[Call]:
    for step in turn.steps:
        for call in step.calls:
            yield call
            if isinstance(call, SubAgentDelegation):
                for below in call.steps:
                    yield from below.calls
