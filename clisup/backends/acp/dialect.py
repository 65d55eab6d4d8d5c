"""Differences between agents of the Agent Client Protocol: hooks with general answers.

The protocol leaves open how agents report the name of a tool, the tokens of a turn and the error of a provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from clisup.backends.acp.errors import ERRORS, explain_error
from clisup.backends.errors import ErrorRule
from clisup.backends.frames import Frame, get_dict, get_dicts, get_str, get_tokens
from clisup.model.events import TurnError, TurnErrorKind
from clisup.model.usage import Usage

__all__ = ["AcpDialect", "Habits"]


@dataclass(frozen=True)
class Habits:
    """Habits of one agent that its frames do not show. The name of the agent decides."""

    pending_input: Literal["whole", "later", "grows"] = "whole"
    """What the input of a pending call is: all of it; none of the model's, and then the title is the tool's name; or a part,
    to which each update of the call adds until something else is told."""
    usage_of_last_request: bool = False
    """The turn's `usage` counts its last model request alone."""
    error_prefix: str = ""
    """How the last chunk begins where a failed request ends the turn with `end_turn`."""


_HABITS = {
    "opencode": Habits(pending_input="later", usage_of_last_request=True),  # 1.18.34
    "claude-agent-acp": Habits(pending_input="grows"),  # 0.101.0
    "copilot": Habits(error_prefix="Error: "),  # 1.0.102; a model's text comes in smaller pieces
}
"""By `agentInfo.name` in lower case and without its npm scope, as measured."""


class AcpDialect:
    """Readers of the words of one agent. A subclass may override every method. No method may raise."""

    errors: ClassVar[tuple[ErrorRule, ...]] = ERRORS
    stops: ClassVar[Mapping[str, tuple[TurnErrorKind, str]]] = {
        "max_tokens": ("output_limit", "the model's answer was cut at its limit of tokens"),
        "max_turn_requests": ("max_turns", "the agent's limit of model requests in one turn is reached"),
        "refusal": ("refusal", "the agent refuses to go on"),
        "cancelled": ("cancelled", "the turn was cancelled"),
    }
    """Kinds and messages of the stop reasons that are failures."""
    cost_spans: Literal["session", "process"] | None = None
    """What the cost of `usage_update` is the sum of. The schema says the session; claude-agent-acp 0.49.0 begins anew with each
    process. None: not known, so that only a session's first turn has a cost."""

    def habits(self, agent: str | None) -> Habits:
        """Return the habits of the agent with this name."""
        return _HABITS.get((agent or "").rpartition("/")[2].lower(), Habits())

    def wire_id(self, session: str, *, resumed: bool) -> str:
        """Return the id of a session for requests to a process that began with it, or with session/load (`resumed`)."""
        return session

    def call(self, report: Frame) -> Frame:
        """Return the report of a call in the words of the schema."""
        return report

    def tool_name(self, call: Frame) -> str:
        """Return the name of the tool: `name` of newer agents, `_meta` of some (qwen 0.24.4), else the kind of tool."""
        meta = get_dict(call, "_meta")
        names = (get_str(call, "name"), get_str(meta, "toolName"), get_str(get_dict(meta, "claudeCode"), "toolName"))
        return next((name for name in names if name), None) or get_str(call, "kind") or "other"

    def questions(self, call: Frame) -> list[str] | None:
        """Return the questions of a call that asks its user by a permission request (qwen 0.24.4), or None for another call."""
        if get_dict(call, "_meta").get("qwenInteractionKind") != "user_question":
            return None
        return [get_str(asked, "question") or "" for asked in get_dicts(get_dict(call, "rawInput"), "questions")]

    def chunk_usage(self, meta: Frame) -> Usage | None:
        """Return `_meta.usage` of a chunk: qwen 0.24.4 sends it at the end of each model request."""
        return _usage(get_dict(meta, "usage"))

    def is_note(self, meta: Frame) -> bool:
        """Tell whether a chunk is a note of the agent and not the model's text: qwen 0.24.4 marks notes about background tasks."""
        return meta.get("qwenDiscreteMessage") is True

    def usage(self, result: Frame) -> Usage | None:
        """Return the tokens in `usage` of the schema, or in `_meta.quota` of gemini 0.61.0."""
        told = _usage(get_dict(result, "usage"))
        if told is not None:
            return told
        quota = get_dict(get_dict(get_dict(result, "_meta"), "quota"), "token_count")
        counts = {name: get_tokens(quota, name) for name in ("input_tokens", "output_tokens")}
        return Usage(**counts, source="reported") if None not in counts.values() and any(counts.values()) else None

    def failure(self, error: Frame, method: str) -> TurnError:
        """Return a JSON-RPC error by the rules of `errors`."""
        return explain_error(self.errors, error, method)


def _usage(told: Frame) -> Usage | None:
    """Return the token counts of the schema's fields.

    In the schema the total is the sum of all kinds. Agents differ in two points: cached tokens may be part of the input, and
    thoughts part of the output. The total shows which. clisup counts input without cached tokens, and output with thoughts.
    """
    read, output = get_tokens(told, "inputTokens"), get_tokens(told, "outputTokens")
    if read is None or output is None or not (read or output):  # opencode 1.18.34 reports 0 for a cancelled request
        return None
    thought, cached, created = (
        get_tokens(told, name) for name in ("thoughtTokens", "cachedReadTokens", "cachedWriteTokens")
    )
    total = get_tokens(told, "totalTokens")
    aside = None if total is None else total - read - output
    stored = (cached or 0) + (created or 0)
    if aside is not None and aside in (0, thought or 0):
        read = max(read - stored, 0)
    if aside is None or aside not in (0, stored):
        output += thought or 0
    return Usage(
        input_tokens=read,
        output_tokens=output,
        cache_read_input_tokens=cached,
        cache_creation_input_tokens=created,
        reasoning_tokens=thought,
        source="reported",
    )
