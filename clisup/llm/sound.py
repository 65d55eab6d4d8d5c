"""Any messages as a conversation that every API takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

from clisup.llm.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

__all__ = ["NO_ANSWER", "NO_PROMPT", "NO_RESULT", "says_something", "sound"]

NO_RESULT = "No result: the turn ended before this call was answered. Nobody knows how far it came."
NO_ANSWER = "(This turn ended without an answer.)"
NO_PROMPT = "(The conversation begins here.)"

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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


def says_something(message: Message) -> bool:
    """Does it have more than thinking, empty texts and what is not its role's to say?"""
    return any(_belongs(block, message.role) and not isinstance(block, ThinkingBlock) for block in message.content)


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
