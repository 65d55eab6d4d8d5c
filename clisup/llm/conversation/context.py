"""From nodes to messages: what a model is to see of some turns, by their marks, in a form that every API takes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from clisup.llm.conversation.nodes import Call, Step, Turn
from clisup.llm.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

__all__ = ["context_of", "sound"]

INPUT_CHARS = 200
"""How much of a long text stays in the input of a call whose result is summed up."""

NO_RESULT = "No result: the turn ended before this call was answered. Nobody knows how far it came."
NO_ANSWER = "(This turn ended without an answer.)"
NO_PROMPT = "(The conversation begins here.)"

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


# -- nodes -> messages ------------------------------------------------------------------------------------------------


def context_of(turns: Iterable[Turn]) -> tuple[Message, ...]:
    """What a model is to see of these turns, by their marks. Empty, or it begins with the user and ends with the model; roles
    alternate, and every call is followed by its result.

    The work of sub-agents is not in it: only their calls and reports, which is what the model saw. Thinking is left out of a step
    whose calls are not all sent as they were, and where two steps have become one message.
    """
    return sound(message for turn in turns if turn.include_in_context for message in _of_turn(turn))


def _of_turn(turn: Turn) -> Iterator[Message]:
    yield Message(role="user", content=turn.prompt.content or (TextBlock(text=NO_PROMPT),))
    if turn.summary is not None:
        messages = [Message.assistant(turn.summary or NO_ANSWER)]
    else:
        messages = [message for step in turn.steps for message in _of_step(step)]
        if not messages or messages[-1].role == "user" or not _says_something(messages[-1]):
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


# -- any messages -> messages that an API takes -----------------------------------------------------------------------


def sound(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same conversation, in the form that every API takes.

    Roles alternate, beginning with the user (a word is put before a conversation that begins with the model). Each call is
    answered in the very next message, results first; a call without a result and a result without a call are left out, as are
    empty texts. Ids of calls are unique and of `[a-zA-Z0-9_-]`. `sound(sound(m)) == sound(m)`.
    """
    merged = _merged(messages)
    if merged and merged[0].role == "assistant":
        merged.insert(0, Message.user(NO_PROMPT))
    kept: list[Message] = []
    taken: set[str] = set()
    answers: tuple[ToolResultBlock, ...] = ()
    for message, after in zip_longest(merged, merged[1:]):
        content: tuple[Block, ...]
        if message.role == "assistant":
            content, answers = _paired(message, after, taken)
        else:
            own = (block for block in message.content if not isinstance(block, ToolResultBlock))
            content, answers = (*answers, *own), ()
        kept.append(Message(role=message.role, content=content))
    full = tuple(message for message in kept if message.content)
    return full if len(full) == len(kept) else sound(full)  # what has become empty makes neighbours of its neighbours


def _merged(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one role as one message; without what is empty, or is not that role's to say."""
    merged: list[Message] = []
    for message in messages:
        content = tuple(block for block in message.content if _belongs(block, message.role))
        if not content:
            continue
        if merged and merged[-1].role == message.role:
            before = tuple(b for b in merged[-1].content if not isinstance(b, ThinkingBlock)) or merged[-1].content
            after = tuple(b for b in content if not isinstance(b, ThinkingBlock)) or content
            merged[-1] = Message(role=message.role, content=(*before, *after))
        else:
            merged.append(Message(role=message.role, content=content))
    return merged


def _belongs(block: Block, role: str) -> bool:
    if isinstance(block, TextBlock):
        return bool(block.text.strip())
    return role == ("assistant" if isinstance(block, ToolUseBlock | ThinkingBlock) else "user")


def _paired(
    message: Message, after: Message | None, taken: set[str]
) -> tuple[tuple[Block, ...], tuple[ToolResultBlock, ...]]:
    """What the model said without calls that nobody answered, and the answers to the others in the order of the calls."""
    answers: dict[str, ToolResultBlock] = {}
    for block in after.content if after is not None else ():
        if isinstance(block, ToolResultBlock):
            answers.setdefault(block.tool_use_id, block)
    said: list[Block] = []
    results: list[ToolResultBlock] = []
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            answer = answers.pop(block.id, None)
            if answer is None:
                continue
            id_ = _free_id(block.id, taken)
            if id_ != block.id:
                answer = answer.model_copy(update={"tool_use_id": id_})
            results.append(answer)
            said.append(block.model_copy(update={"id": id_}) if id_ != block.id else block)
        else:
            said.append(block)
    return tuple(said), tuple(results)


def _free_id(wanted: str, taken: set[str]) -> str:
    base = wanted if _ID.fullmatch(wanted) else (re.sub(r"[^a-zA-Z0-9_-]", "_", wanted)[:56] or "call")
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base[:56]}-{n}"
    taken.add(name)
    return name


def _says_something(message: Message) -> bool:
    return any(_belongs(block, message.role) and not isinstance(block, ThinkingBlock) for block in message.content)
