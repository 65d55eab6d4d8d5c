"""Conversations that stop at calls of the caller's tools, and the results that go on with them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import Message, ToolResultBlock, ToolUseBlock

__all__ = ["GO_ON", "OpenRound", "last_said", "open_round", "results_in"]

GO_ON = "Go on: the results of your tool calls are above."
"""The prompt that goes with results which are told as text."""


class OpenRound(NamedTuple):
    """The end of a history that stops at calls. `before` ends before the prompt that led to them, `since` begins with it.

    `brought` are results that the history has already, `waiting` the calls without one.
    """

    before: tuple[Message, ...]
    since: tuple[Message, ...]
    brought: tuple[ToolResultBlock, ...]
    waiting: tuple[ToolUseBlock, ...]

    @property
    def calls(self) -> tuple[ToolUseBlock, ...]:
        """Calls of the last message."""
        last = next((message for message in reversed(self.since) if message.role == "assistant"), None)
        return () if last is None else last.tool_uses

    @property
    def without_results(self) -> tuple[Message, ...]:
        """History up to the message of the calls."""
        end = max((n for n, message in enumerate(self.since, 1) if message.role == "assistant"), default=0)
        return (*self.before, *self.since[:end])


def open_round(history: Sequence[Message]) -> OpenRound | None:
    """Return where a history stops at calls without results; None for one that ends with a word of the model's."""
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
    """Return the results that a prompt brings, and those `brought` before, by the ids of the calls.

    Raises `InvalidRequest` where a call that waits has no result, or a result no call.
    """
    results = {block.tool_use_id: block for block in (*brought, *prompt.content) if isinstance(block, ToolResultBlock)}
    names = {call.id: call.name for call in waiting}
    known = names.keys() | {block.tool_use_id for block in brought}
    if unknown := sorted(results.keys() - known):
        waits = f"these calls wait: {', '.join(sorted(names))}" if names else "no call waits for one"
        raise _refused(f"the prompt has a result for {unknown[0]!r}, which is no open call; {waits}", "leave it out")
    if missing := [id_ for id_ in names if id_ not in results]:
        wanted = ", ".join(f"{id_} ({names[id_]})" for id_ in missing)
        raise _refused(
            f"the prompt has no result for {wanted}: the model waits for the results of all its calls",
            "give Message.user([ToolResultBlock(...), ...]); is_error=True tells the model that a call was not run",
        )
    return results


def _is_prompt(message: Message) -> bool:
    return message.role == "user" and any(not isinstance(block, ToolResultBlock) for block in message.content)


def _refused(what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(what, kind="invalid_request", hint=hint)
