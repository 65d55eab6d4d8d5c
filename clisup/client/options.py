"""Options of the named methods, with the names of the wire. docs/reference/protocol.md describes each. None means "not given"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from clisup.client.raw import JsonObject

__all__ = ["EventOptions", "PromptOptions", "SessionOptions", "given"]


class SessionOptions(TypedDict, total=False):
    """Options of `session/new`, besides `backend` and `cwd`."""

    session_id: str | None
    model: str | None
    system_prompt: str | None
    permission_mode: str | None
    mode: Literal["one-shot", "live"] | None
    env: dict[str, str] | None
    mcp_config: JsonObject | None
    timeouts: dict[str, float] | None
    labels: dict[str, str] | None
    resume_native_id: str | None
    approvals: JsonObject | None
    budget: dict[str, float] | None
    tools: list[JsonObject] | None
    history: Sequence[Mapping[str, Any]] | None
    cli_tools: Literal["default", "none"] | list[str] | None
    system_prompt_mode: Literal["append", "replace"] | None
    worktree: Mapping[str, str] | bool | None
    title: str | None


class PromptOptions(TypedDict, total=False):
    """Options of `session/prompt`, besides `prompt` and `wait`."""

    key: str | None
    when_busy: Literal["queue", "refuse", "steer"]
    when_limited: Literal["wait", "refuse"]
    expand: bool
    output_schema: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]] | None
    sampling: Mapping[str, Any] | None
    timeout_s: float | None


class EventOptions(TypedDict, total=False):
    """Options of `session/subscribe`, besides `session_id` and `after_seq`."""

    types: list[str] | None
    deltas: bool
    raw: bool
    name: str | None


def given(params: Mapping[str, Any]) -> JsonObject:
    """Return the params that are not None."""
    return {name: value for name, value in params.items() if value is not None}
