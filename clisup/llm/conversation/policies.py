"""Policies that shorten a conversation: they mark nodes before a prompt. Pure.

A policy is any object with `edit(turns, beside=n)` that returns edited turns. `beside` are the tokens of system prompt, tools and
next prompt. Policies run in the user's order, each on the result of the one before.

The policies of this module change marks only (`include_in_context`, `summary`), and a second pass changes nothing. Only `TokenBudget`
leaves out prompts of the user: whole turns, the oldest first and never the last. Each edit costs the backend's cache.
`at_least_tokens` and `down_to` therefore keep edits few and large.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from pydantic import Field

from clisup.llm.conversation.context import context_of, estimate_tokens
from clisup.llm.conversation.nodes import AgentPolicy, Call, Step, SubAgentDelegation, ToolInteraction, Turn, with_calls
from clisup.llm.messages import TextBlock
from clisup.llm.shapes import NamedOptions

CONTEXT_TOKENS = 50_000
"""Default limit of a conversation. Each prompt of an agent loop sends the conversation again, so the cost grows with this number.
The smallest contexts of today's models hold it beside the CLI's own part."""

MARK_CHARS = 40
"""Longest mark between head and tail of a cut text."""


class Policy(Protocol):
    """Editor of a conversation before a prompt."""

    def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...] | Awaitable[tuple[Turn, ...]]:
        """Return the edited turns, or the same turns. The method may be async."""


class _Policy(NamedOptions, ABC):
    """Base of the policies here, so that a list of several of them is typed as a list of policies."""

    @abstractmethod
    def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...] | Awaitable[tuple[Turn, ...]]: ...


class DropCompletedToolCalls(_Policy):
    """Leave out tool calls of older turns, with their results. Later text has their important parts.

    Calls of the last `keep_turns` turns, calls of tools in `exclude`, and failed calls stay (see `CompressFailedPlans`). With
    `leave="call"` the call stays, with its input cut and a note instead of its result. Edits below `at_least_tokens` do not happen.
    """

    keep_turns: int = Field(default=1, ge=0)
    leave: Literal["nothing", "call"] = "nothing"
    exclude: frozenset[str] = frozenset()
    at_least_tokens: int = Field(default=0, ge=0)

    def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...]:
        return _if_worth_it(turns, _older(turns, self.keep_turns, self._drop), self.at_least_tokens)

    def _drop(self, call: Call) -> Call:
        if not isinstance(call, ToolInteraction) or call.failed or call.name in self.exclude or not _whole(call):
            return call
        if self.leave == "call":
            return call.model_copy(update={"summary": "(The result was left out: the call is done.)"})
        return call.model_copy(update={"include_in_context": False})


class CompressFailedPlans(_Policy):
    """Shorten failures to a line.

    A failed call becomes the first line of its error, at most `max_chars`. A failed or interrupted turn becomes its end, its calls
    and its last text. The last `keep_turns` turns stay whole, because the model may be repairing them.
    """

    keep_turns: int = Field(default=1, ge=0)
    max_chars: int = Field(default=200, ge=80)
    at_least_tokens: int = Field(default=0, ge=0)

    def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...]:
        compressed = tuple(self._turn(turn) for turn in _before(turns, self.keep_turns))
        return _if_worth_it(turns, (*compressed, *turns[len(compressed) :]), self.at_least_tokens)

    def _turn(self, turn: Turn) -> Turn:
        if turn.outcome == "completed":
            return with_calls(turn, self._call)
        if turn.summary is not None or not turn.include_in_context:
            return turn
        said = f"This attempt {'was interrupted' if turn.outcome == 'interrupted' else 'failed'}"
        parts = [f"{said}: {_cut(turn.error, self.max_chars)}" if turn.error else f"{said}."]
        if turn.calls:
            parts.append(f"Before that it called {_names(turn.calls)}; what they did was done.")
        if turn.text:
            parts.append(f"It had said: {_cut(turn.text, self.max_chars)}")
        return turn.model_copy(update={"summary": "(" + " ".join(parts) + ")"})

    def _call(self, call: Call) -> Call:
        if not isinstance(call, ToolInteraction) or not call.failed or not _whole(call) or call.result is None:
            return call
        line = next((line for line in call.result.text.splitlines() if line.strip()), "no reason given")
        return call.model_copy(update={"summary": f"Failed: {_cut(line.strip(), self.max_chars)}"})


class SummarizeSubAgentChatter(_Policy):
    """Shorten reports of sub-agents in older turns, each by its own `AgentPolicy` or by `default`.

    Sub-agents of sub-agents come first, so that a transcript has their shortened reports.
    """

    default: AgentPolicy = AgentPolicy()
    keep_turns: int = Field(default=1, ge=0)
    at_least_tokens: int = Field(default=0, ge=0)

    def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...]:
        return _if_worth_it(turns, _older(turns, self.keep_turns, self._shorten, deep=True), self.at_least_tokens)

    def _shorten(self, call: Call) -> Call:
        if not isinstance(call, SubAgentDelegation) or not _whole(call):
            return call
        policy = call.policy or self.default
        if policy.keep == "nothing":
            return call.model_copy(update={"include_in_context": False})
        report = call.report or "It gave no report."
        size = max(len(report), len(call.result.text) if call.result else 0, len(str(call.input)))
        if policy.keep == "summary" and size > policy.max_chars:
            return call.model_copy(update={"summary": _cut(report, policy.max_chars)})
        if policy.keep == "transcript":
            half = policy.max_chars // 2
            told = _cut("\n".join(_told(call.steps, half)), half)
            return call.model_copy(update={"summary": f"{told}\n\nIts report: {_cut(report, half)}".strip()})
        return call


class TokenBudget(_Policy):
    """Keep the context under `limit` estimated tokens, with `beside`. Beyond the limit, reduce it to the share `down_to`.

    Calls with results and reports of sub-agents go first, then the model's text of a turn beyond `max_chars`, then whole turns, in
    each pass from the oldest turn on. The last `keep_turns` turns lose calls only if the limit requires it, and never their texts.
    """

    limit: int = Field(gt=0)
    down_to: float = Field(default=0.6, gt=0, le=1)
    keep_turns: int = Field(default=2, ge=1)
    max_chars: int = Field(default=400, ge=80)

    def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...]:
        sizes = [_size(turn) for turn in turns]
        if sum(sizes) + beside <= self.limit:
            return turns
        most, goal = self.limit - beside, int(self.limit * self.down_to) - beside
        edited, old = list(turns), len(_before(turns, self.keep_turns))
        passes: tuple[tuple[range, Callable[[Turn], Turn], int], ...] = (
            (range(old), _without_results, goal),
            (range(old), self._summed_up, goal),
            (range(old), _left_out, goal),
            (range(old, len(turns)), _without_results, most),
        )
        for places, shorten, enough in passes:
            for place in places:
                if sum(sizes) <= enough:
                    break
                edited[place] = shorten(edited[place])
                sizes[place] = _size(edited[place])
        return tuple(edited)

    def _summed_up(self, turn: Turn) -> Turn:
        if turn.summary is not None or not turn.include_in_context:
            return turn
        called = f" (It called {_names(turn.calls)}.)" if turn.calls else ""
        summed_up = turn.model_copy(update={"summary": f"{_cut(turn.text, self.max_chars)}{called}".strip()})
        return summed_up if _size(summed_up) < _size(turn) else turn


def default_policies(
    context_tokens: int = CONTEXT_TOKENS,
) -> tuple[DropCompletedToolCalls, CompressFailedPlans, SummarizeSubAgentChatter, TokenBudget]:
    """Return the default policies of a `Conversation`, with a limit of `context_tokens`. Each edit saves at least a tenth of it."""
    worth = context_tokens // 10
    return (
        DropCompletedToolCalls(keep_turns=3, at_least_tokens=worth),
        CompressFailedPlans(at_least_tokens=worth),
        SummarizeSubAgentChatter(keep_turns=3, at_least_tokens=worth),
        TokenBudget(limit=context_tokens),
    )


# -- parts of them ----------------------------------------------------------------------------------------------------


def _before(turns: tuple[Turn, ...], keep: int) -> tuple[Turn, ...]:
    """Return all turns before the last `keep` turns in the context."""
    shown = [place for place, turn in enumerate(turns) if turn.include_in_context]
    if keep <= 0:
        return turns
    return turns[: shown[-keep]] if len(shown) > keep else ()


def _older(
    turns: tuple[Turn, ...], keep: int, change: Callable[[Call], Call], *, deep: bool = False
) -> tuple[Turn, ...]:
    old = _before(turns, keep)
    return (*(with_calls(turn, change, deep=deep) for turn in old), *turns[len(old) :])


def _if_worth_it(turns: tuple[Turn, ...], edited: tuple[Turn, ...], at_least: int) -> tuple[Turn, ...]:
    changed = [(before, after) for before, after in zip(turns, edited, strict=True) if before is not after]
    if not changed or (at_least and sum(_size(before) - _size(after) for before, after in changed) < at_least):
        return turns
    return edited


def _size(turn: Turn) -> int:
    return estimate_tokens(context_of((turn,)))


def _whole(call: Call) -> bool:
    return call.include_in_context and call.summary is None


def _without_results(turn: Turn) -> Turn:
    return with_calls(turn, lambda call: call.model_copy(update={"include_in_context": False}))


def _left_out(turn: Turn) -> Turn:
    return turn.model_copy(update={"include_in_context": False})


def _cut(text: str | None, chars: int) -> str:
    """Return head and tail of a long text. A report has its topic at the beginning and its result at the end."""
    text = (text or "").strip()
    if len(text) <= chars:
        return text
    kept = chars - MARK_CHARS
    tail = kept // 3
    mark = f" [... {len(text) - kept} characters left out ...] "
    return f"{text[: kept - tail]}{mark}{text[len(text) - tail :]}"


def _names(calls: Sequence[Call]) -> str:
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.name or "a tool"] = counts.get(call.name or "a tool", 0) + 1
    return ", ".join(name if n == 1 else f"{name} ({n} times)" for name, n in counts.items())


def _told(steps: Sequence[Step], chars: int) -> list[str]:
    """Return the texts and calls of a sub-agent, line by line."""
    lines: list[str] = []
    for step in steps:
        for part in step.said:
            if isinstance(part, TextBlock):
                lines.append(_cut(part.text, chars))
            elif isinstance(part, ToolInteraction | SubAgentDelegation) and part.include_in_context:
                answer = part.summary if part.summary is not None else part.result.text if part.result else "no answer"
                lines.append(f"[{part.name}] {_cut(answer, chars)}")
    return lines
