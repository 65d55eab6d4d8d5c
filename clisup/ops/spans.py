"""Spans of a session's events, by OpenTelemetry's conventions for generative AI.

Pure: the times are those of the events. A turn is `invoke_agent NAME`, each tool call in it a child `execute_tool
NAME`. A subagent's tools are children of the tool that runs the subagent. The ids are made from the session's and the
turn's ids. The same events give the same spans in any daemon, so a span that is sent twice is still one span. The text
of prompts, models and tools is left out unless requested.

Source: github.com/open-telemetry/semantic-conventions-genai, gen-ai-agent-spans.md and execute-tool.md (status:
development).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from clisup.model.usage import Usage

MAX_TOOLS = 1000
"""Tool calls of one turn that get a span. The turn's span counts the others."""
MAX_NAME = 200
"""Limit of any other text in a span, in characters: a CLI chooses the names of its tools, calls and models."""
MAX_CONTENT = 8192
"""Limit of a requested text, in characters."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT64 = 2**63 - 1
_PROVIDERS = {"claude": "anthropic", "codex": "openai", "codex-exec": "openai", "gemini": "gcp.gemini"}
"""Providers by kind of CLI, as far as the conventions have a name. An account may belong to another provider; no CLI
reports that (see the page)."""
_TOKENS = {
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_creation_input_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "cache_read_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}

Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Span. Times are nanoseconds since the epoch; `error` is the kind of a failure, None without a failure."""

    name: str
    kind: Literal["client", "internal"]
    trace_id: int
    span_id: int
    parent_id: int | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TracedSession:
    """Session, as no event describes it: its backend's name and kind, and the requested model."""

    session_id: str
    backend: str
    kind: str
    model: str | None = None


@dataclass(slots=True)
class _Tool:
    id: str
    name: str
    start_ns: int
    parent: str
    input: str = ""
    end_ns: int | None = None
    error: str | None = None
    result: str = ""


@dataclass(slots=True)
class _Turn:
    """Turn that has begun.

    `seq` is that of its first event, for reading the turn again. Texts are kept only for `content`.
    """

    seq: int
    start_ns: int
    content: bool = False
    preview: str = ""
    origin: str = "prompt"
    model: str | None = None
    version: str | None = None
    answered_ns: int | None = None
    tools: dict[str, _Tool] = field(default_factory=dict)
    left_out: int = 0


class SessionTrace:
    """Trace of one session's turns.

    `see` takes the events of `TRACED` in order; a turn's end returns the spans of that turn.
    """

    def __init__(self, session: TracedSession, *, content: bool = False) -> None:
        self._session = session
        self._content = content
        self._open: dict[str, _Turn] = {}

    @property
    def open_since(self) -> int | None:
        """Return the seq of the start of the oldest open turn, or None."""
        return min((turn.seq for turn in self._open.values()), default=None)

    def see(self, event: Mapping[str, Any]) -> list[Span]:
        """Return the spans of the turn that this event ends, or an empty list."""
        turn_id, type_ = event.get("turn_id"), event["type"]
        if not turn_id or type_ not in TRACED:
            return []
        if type_ == "turn_started":
            self._open[turn_id] = _begun(event, content=self._content)
        elif type_ == "turn_completed":
            return self._ended(turn_id, event)
        elif (turn := self._open.get(turn_id)) is not None:
            _NOTES[type_](turn, event)
        return []

    def _ended(self, turn_id: str, event: Mapping[str, Any]) -> list[Span]:
        end_ns = _ns(event["ts"])
        turn = self._open.pop(turn_id, None)
        if turn is None:
            if event["outcome"] == "interrupted" and event.get("duration_s") is None:
                return []  # removed from the queue: no agent was invoked
            turn = _Turn(event["seq"], end_ns - int((event.get("duration_s") or 0.0) * 1e9))
        whole = self._turn_span(turn_id, turn, event, end_ns)
        return [whole, *(self._tool_span(turn_id, turn, tool, whole) for tool in turn.tools.values())]

    def _turn_span(self, turn_id: str, turn: _Turn, event: Mapping[str, Any], end_ns: int) -> Span:
        session, outcome = self._session, event["outcome"]
        error = (event.get("error") or {}).get("kind") if outcome in ("failed", "timed_out") else None
        attributes: dict[str, Value | None] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _PROVIDERS.get(session.kind, session.kind),
            "gen_ai.agent.name": session.backend,
            "gen_ai.agent.version": turn.version,
            "gen_ai.conversation.id": session.session_id,
            "gen_ai.request.model": turn.model or session.model,
            "gen_ai.response.finish_reasons": (event["stop_reason"],) if event.get("stop_reason") else None,
            "gen_ai.response.time_to_first_chunk": _seconds(turn.start_ns, turn.answered_ns),
            **_usage(event.get("usage") or {}),
            "error.type": error,
            "clisup.turn.id": turn_id,
            "clisup.turn.origin": turn.origin,
            "clisup.turn.outcome": outcome,
            "clisup.turn.cost_usd": event.get("cost_usd"),
            "clisup.turn.cost_source": event.get("cost_source") if event.get("cost_usd") is not None else None,
            "clisup.turn.tools": len(turn.tools) + turn.left_out,
        }
        said = {
            "gen_ai.input.messages": _message("user", turn.preview),
            "gen_ai.output.messages": _message("assistant", event.get("text") or ""),
        }
        return Span(
            name=f"invoke_agent {session.backend}",
            kind="client",  # the agent runs in another process than the caller
            trace_id=trace_id(session.session_id, turn_id),
            span_id=span_id(session.session_id, turn_id),
            parent_id=None,
            start_ns=turn.start_ns,
            end_ns=max(turn.start_ns, end_ns),
            attributes=_given(attributes, said if self._content else {}),
            error=error or ("failed" if outcome in ("failed", "timed_out") else None),
        )

    def _tool_span(self, turn_id: str, turn: _Turn, tool: _Tool, whole: Span) -> Span:
        session_id = self._session.session_id
        error = tool.error if tool.end_ns is not None else "no_result"
        attributes: dict[str, Value | None] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": tool.id,
            "gen_ai.agent.name": self._session.backend,
            "gen_ai.conversation.id": session_id,
            "error.type": error,
        }
        said = {
            "gen_ai.tool.call.arguments": tool.input,
            "gen_ai.tool.call.result": tool.result or None,
        }
        return Span(
            name=f"execute_tool {_encodable(tool.name)}",
            kind="internal",
            trace_id=whole.trace_id,
            span_id=span_id(session_id, turn_id, tool.id),
            parent_id=span_id(session_id, turn_id, tool.parent) if tool.parent in turn.tools else whole.span_id,
            start_ns=tool.start_ns,
            end_ns=max(tool.start_ns, whole.end_ns if tool.end_ns is None else tool.end_ns),
            attributes=_given(attributes, said if self._content else {}),
            error=error,
        )


def trace_id(session_id: str, turn_id: str) -> int:
    """Return the 128-bit id of a turn's trace."""
    return _id(16, session_id, turn_id)


def span_id(session_id: str, turn_id: str, tool_use_id: str | None = None) -> int:
    """Return the 64-bit id of a turn's span, or of one of its tools."""
    return _id(8, session_id, turn_id, *([tool_use_id] if tool_use_id is not None else []))


def _id(size: int, *parts: str) -> int:
    return int.from_bytes(blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=size).digest()) or 1


# -- notes from the events in a turn -----------------------------------------------------------------------------------


def _begun(event: Mapping[str, Any], *, content: bool) -> _Turn:
    turn = _Turn(event["seq"], _ns(event["ts"]), content, origin=event.get("origin", "prompt"))
    if content:
        turn.preview = event.get("prompt_preview") or ""
    return turn


def _init(turn: _Turn, event: Mapping[str, Any]) -> None:
    turn.model = event.get("model") or turn.model
    turn.version = event.get("backend_version") or turn.version


def _answered(turn: _Turn, event: Mapping[str, Any]) -> None:
    if turn.answered_ns is None and event["source"] == "backend" and not event.get("synthetic"):
        turn.answered_ns = _ns(event["ts"])
    if event["type"] == "message_start" and not event.get("parent_tool_use_id"):
        turn.model = turn.model or event.get("model")


def _tool_use(turn: _Turn, event: Mapping[str, Any]) -> None:
    _answered(turn, event)
    id_ = event["tool_use_id"][:MAX_NAME]
    if id_ in turn.tools:
        return
    if len(turn.tools) >= MAX_TOOLS:
        turn.left_out += 1
        return
    name, parent = event["name"][:MAX_NAME], (event.get("parent_tool_use_id") or "")[:MAX_NAME]
    tool = turn.tools[id_] = _Tool(id_, name, _ns(event["ts"]), parent)
    if turn.content:
        tool.input = json.dumps(event.get("input"), ensure_ascii=False)[:MAX_CONTENT]


def _tool_result(turn: _Turn, event: Mapping[str, Any]) -> None:
    if (tool := turn.tools.get(event["tool_use_id"][:MAX_NAME])) is not None and tool.end_ns is None:
        tool.end_ns = _ns(event["ts"])
        tool.error = tool.error or ("tool_error" if event.get("is_error") else None)
        if turn.content:
            tool.result = (event.get("content") or "")[:MAX_CONTENT]


def _denied(turn: _Turn, event: Mapping[str, Any]) -> None:
    if (tool := turn.tools.get((event.get("tool_use_id") or "")[:MAX_NAME])) is not None:
        tool.error = "permission_denied"


_NOTES: dict[str, Callable[[_Turn, Mapping[str, Any]], None]] = {
    "session_init": _init,
    "message_start": _answered,
    "message": _answered,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "permission_denied": _denied,
}
TRACED = frozenset({"turn_started", "turn_completed", *_NOTES})
"""Types of events from which spans are made. None of them comes with every token."""


# -- values ---------------------------------------------------------------------------------------------------------------


def _ns(ts: str) -> int:
    return (datetime.fromisoformat(ts) - _EPOCH) // _MICROSECOND * 1000


def _seconds(start_ns: int, end_ns: int | None) -> float | None:
    return None if end_ns is None else round(max(0, end_ns - start_ns) / 1e9, 6)


def _usage(fields: Mapping[str, Any]) -> dict[str, Value | None]:
    """Return the token attributes. By the conventions input tokens include the cached ones."""
    usage = msgspec.convert(fields, Usage)
    tokens: dict[str, Value | None] = {name: getattr(usage, own) for own, name in _TOKENS.items()}
    return {"gen_ai.usage.input_tokens": usage.total_input_tokens, **tokens}


def _message(role: str, text: str) -> str | None:
    parts = [{"role": role, "parts": [{"type": "text", "content": text[:MAX_CONTENT]}]}]
    return json.dumps(parts, ensure_ascii=False) if text else None


def _given(attributes: Mapping[str, Value | None], said: Mapping[str, str | None]) -> dict[str, Value]:
    """Return all known attributes in a form that OTLP can carry.

    Otherwise one CLI's value would make a whole batch fail, with the spans of others.
    """
    known = {name: _sayable(value) for name, value in attributes.items() if value is not None}
    return known | {name: _encodable(text) for name, text in said.items() if text is not None}


def _sayable(value: Value) -> Value:
    if isinstance(value, str):
        return _encodable(value[:MAX_NAME])
    if isinstance(value, tuple):
        return tuple(_encodable(each[:MAX_NAME]) for each in value)
    return max(-_INT64, min(value, _INT64)) if type(value) is int else value


def _encodable(text: str) -> str:
    """Return the text without halves of a surrogate pair, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
