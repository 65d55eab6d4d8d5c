"""From nodes to messages: what a model is to see of some turns, by their marks, in a form that every API takes. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from clisup.llm.conversation.nodes import Call, Step, Turn
from clisup.llm.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.sound import NO_ANSWER, NO_PROMPT, NO_RESULT, says_something, sound

__all__ = ["context_of", "messages_of"]

INPUT_CHARS = 200
"""How much of a long text stays in the input of a call whose result is summed up."""


def context_of(turns: Iterable[Turn]) -> tuple[Message, ...]:
    """What a model is to see of these turns, by their marks. Empty, or it begins with the user and ends with the model; roles
    alternate, and every call is followed by its result.

    The work of sub-agents is not in it: only their calls and reports, which is what the model saw. Thinking is left out of a step
    whose calls are not all sent as they were, and where two steps have become one message.
    """
    return sound(messages_of(turns))


def messages_of(turns: Iterable[Turn], *, ended: bool = True) -> Iterator[Message]:
    """The messages of the turns, one turn after the other. `ended=False` gives what came after the prompt, as far as it is there."""
    for turn in turns:
        if not ended:
            yield from (message for step in turn.steps for message in _of_step(step))
        elif turn.include_in_context:
            yield from _of_turn(turn)


def _of_turn(turn: Turn) -> Iterator[Message]:
    yield Message(role="user", content=turn.prompt.content or (TextBlock(text=NO_PROMPT),))
    if turn.summary is not None:
        messages = [Message.assistant(turn.summary or NO_ANSWER)]
    else:
        messages = [message for step in turn.steps for message in _of_step(step)]
        if not messages or messages[-1].role == "user" or not says_something(messages[-1]):
            messages.append(Message.assistant(NO_ANSWER))
    if turn.cache:
        messages[-1] = _marked(messages[-1])
    yield from messages


def _of_step(step: Step) -> Iterator[Message]:
    sent = [call for call in step.calls if call.include_in_context]
    whole = len(sent) == len(step.calls) and all(call.summary is None for call in sent)
    said: list[Block] = []
    results: list[Block] = []
    for part in step.said:
        if isinstance(part, TextBlock):
            said.append(part)
        elif isinstance(part, ThinkingBlock):
            if whole:
                said.append(part)
        elif part.include_in_context:
            use, result = _pair(part)
            said.append(use)
            results.append(result)
    if said:
        yield Message(role="assistant", content=tuple(said))
    if results:
        yield Message(role="user", content=tuple(results))


def _pair(call: Call) -> tuple[ToolUseBlock, ToolResultBlock]:
    """A call and its result. A summary takes the result's place: a call told in prose would teach the model to call in prose."""
    input_, result = call.input, call.result or ToolResultBlock(tool_use_id=call.id, content=NO_RESULT, is_error=True)
    if call.summary is not None:
        input_ = {name: _short(value) for name, value in input_.items()}
        result = ToolResultBlock(tool_use_id=call.id, content=call.summary or "(left out)", is_error=result.is_error)
    return ToolUseBlock(id=call.id, name=call.name or "unknown", input=input_), result


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > INPUT_CHARS:
        return f"{value[:INPUT_CHARS]}... ({len(value) - INPUT_CHARS} characters left out)"
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return value if len(text) <= INPUT_CHARS else _short(text)
    return value


def _marked(message: Message) -> Message:
    *rest, last = message.content
    if isinstance(last, ThinkingBlock):
        return message
    return Message(role=message.role, content=(*rest, last.model_copy(update={"cache": True})))
