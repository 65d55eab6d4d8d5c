"""Histories of messages: valid for every API, at open calls of the caller's tools, and as text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

NO_RESULT = "No result: the turn ended before this call was answered. Nobody knows how far it came."
NO_ANSWER = "(This turn ended without an answer.)"
NO_PROMPT = "(The conversation begins here.)"

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def valid_history(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the same conversation in the form that every API takes.

    Roles alternate, the user first. A conversation that begins with the model gets a text before it. The next message answers each
    call, results first. Calls without results, results without calls and empty texts are left out. Ids of calls are unique and
    match `[a-zA-Z0-9_-]`. A second pass changes nothing.
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
    return full if len(full) == len(kept) else valid_history(full)  # a gap makes new neighbours


def says_something(message: Message) -> bool:
    """Return whether a message has more than thinking, empty texts and blocks of the other role."""
    return any(_belongs(block, message.role) and not isinstance(block, ThinkingBlock) for block in message.content)


def _merged(messages: Iterable[Message]) -> list[Message]:
    """Join neighbours of one role. Leave out empty texts and blocks of the other role."""
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
    """Return the model's blocks without unanswered calls, and the results of the other calls in order."""
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
            results.append(answer.model_copy(update={"tool_use_id": id_}))
            said.append(block.model_copy(update={"id": id_}))
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


GO_ON = "Go on: the results of your tool calls are above."
"""Prompt after results that are told as text."""


class OpenRound(NamedTuple):
    """End of a history that stops at calls. `since` begins with the prompt that led to the calls, `before` ends before it.

    `brought` are results that the history has already. `waiting` are the calls without results.
    """

    before: tuple[Message, ...]
    since: tuple[Message, ...]
    brought: tuple[ToolResultBlock, ...]
    waiting: tuple[ToolUseBlock, ...]

    @property
    def calls(self) -> tuple[ToolUseBlock, ...]:
        """Calls of the last message of the model."""
        last = next((message for message in reversed(self.since) if message.role == "assistant"), None)
        return () if last is None else last.tool_uses

    @property
    def without_results(self) -> tuple[Message, ...]:
        """History up to the message of the calls."""
        end = max((n for n, message in enumerate(self.since, 1) if message.role == "assistant"), default=0)
        return (*self.before, *self.since[:end])


def open_round(history: Sequence[Message]) -> OpenRound | None:
    """Return the open calls at the end of a history, or None if the model's message ends the history."""
    end = next((n for n in range(len(history), 0, -1) if history[n - 1].role == "assistant"), 0)
    after = [block for message in history[end:] for block in message.content]
    brought = tuple(block for block in after if isinstance(block, ToolResultBlock))
    if not end or len(brought) < len(after):
        return None
    answered = {block.tool_use_id for block in brought}
    waiting = tuple(call for call in history[end - 1].tool_uses if call.id not in answered)
    if not waiting:
        return None
    begin = next((n for n in range(end - 1, -1, -1) if _is_prompt(history[n])), 0)
    return OpenRound(tuple(history[:begin]), tuple(history[begin:]), brought, waiting)


def last_said(messages: Sequence[Message]) -> str:
    """Return the text of the user's last prompt, without results of tools."""
    return next((message.text for message in reversed(messages) if _is_prompt(message)), "")


def results_in(
    prompt: Message, waiting: Sequence[ToolUseBlock], brought: Sequence[ToolResultBlock] = ()
) -> dict[str, ToolResultBlock]:
    """Return the results of a prompt and those `brought` before, by the ids of the calls.

    Raises `InvalidRequest` for a waiting call without a result, and for a result without a call.
    """
    results = {block.tool_use_id: block for block in (*brought, *prompt.content) if isinstance(block, ToolResultBlock)}
    names = {call.id: call.name for call in waiting}
    known = names.keys() | {block.tool_use_id for block in brought}
    if unknown := sorted(results.keys() - known):
        waits = f"these calls wait: {', '.join(sorted(names))}" if names else "no call waits for one"
        raise InvalidRequest(
            f"the prompt has a result for {unknown[0]!r}, which is no open call; {waits}", hint="leave it out"
        )
    if missing := [id_ for id_ in names if id_ not in results]:
        wanted = ", ".join(f"{id_} ({names[id_]})" for id_ in missing)
        raise InvalidRequest(
            f"the prompt has no result for {wanted}: the model waits for the results of all its calls",
            hint="give Message.user([ToolResultBlock(...), ...]); is_error=True tells the model that a call was not run",
        )
    return results


def _is_prompt(message: Message) -> bool:
    return message.role == "user" and any(not isinstance(block, ToolResultBlock) for block in message.content)


_BEFORE = (
    "What follows is the conversation so far, which was held elsewhere. It is yours: go on with it as if it had been here. "
    "The tools in it have run already."
)


def transcript_of(messages: Sequence[Message]) -> str:
    """Return the conversation between tags, with calls as JSON and results as text. Thinking is left out, images are named."""
    parts = (f"<{message.role}>\n{_said(message)}\n</{message.role}>" for message in messages)
    return "\n".join(["<conversation>", *parts, "</conversation>"])


def seeded(history: Sequence[Message], prompt: Message, *, system: str | None = None) -> Message:
    """Return one message of the user: instructions and history as text, then the prompt. Without both, return the prompt."""
    parts = [f"<instructions>\n{system}\n</instructions>"] if system else []
    parts += [f"{_BEFORE}\n\n{transcript_of(history)}"] if history else []
    if not parts:
        return prompt
    return Message(role="user", content=(TextBlock(text="\n\n".join(parts) + "\n\n"), *prompt.content))


def _said(message: Message) -> str:
    return "\n".join(text for block in message.content if (text := _text(block)))


def _text(block: Block) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ToolUseBlock):
        return f'<tool_use name="{block.name}">{json.dumps(block.input, ensure_ascii=False)}</tool_use>'
    if isinstance(block, ToolResultBlock):
        return f"<tool_{'error' if block.is_error else 'result'}>\n{block.text}\n</tool_{'error' if block.is_error else 'result'}>"
    return f"[an image, {block.media_type}]" if isinstance(block, ImageBlock) else ""
