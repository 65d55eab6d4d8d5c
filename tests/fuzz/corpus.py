"""Where inputs come from: the recordings of the real CLI, and frames of every kind that the code knows and no recording has."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from clisup.backends.claude.rare_frames import RARE, SILENT
from clisup.errors import KINDS
from clisup.model.events import Notice, StderrLine, TurnCompleted, TurnStarted
from clisup.model.journal import Source, encode_snapshot
from clisup.model.sessions.ledger import Ledger
from clisup.wire.methods import METHODS
from tests.fuzz.http_corpus import HttpBytes
from tests.fuzz.mutate import Mutator, Seed, as_line
from tests.journals import block_of, encode_event, old_line

__all__ = ["MAKERS", "Maker"]

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = sorted((ROOT / "tests" / "recordings" / "claude").glob("*/*.jsonl"))
SESSION = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"
LONG = 8192
Maker = Callable[[], bytes]

# Fields that some frame has somewhere: a frame made of all of them meets every reader's question with an answer to spoil.
_FIELDS: dict[str, Any] = {
    "session_id": SESSION, "uuid": "u", "status": "s", "permissionMode": "default", "compact_result": "done", "compact_error": "e",
    "attempt": 1, "max_retries": 10, "retry_delay_ms": 500, "error_status": 529, "error": "overloaded", "tool_use_id": "i",
    "parent_tool_use_id": "p", "tool_name": "Bash", "decision_reason": "no", "message": "m", "heartbeat": True,
    "elapsed_time_seconds": 3.5, "request_id": "r", "original_model": "a", "fallback_model": "b", "content": "c", "trigger": "auto",
    "hook_name": "h", "outcome": "success", "task_id": "k", "task_type": "local_bash", "description": "d", "summary": "s",
    "rate_limit_info": {"status": "rejected", "rateLimitType": "five_hour", "utilization": 0.9, "resetsAt": 1790000000},
    "compact_metadata": {"trigger": "auto", "pre_tokens": 9, "post_tokens": 3}, "patch": {"status": "completed", "description": "d"},
    "tasks": [{"task_id": "k", "task_type": "local_bash", "description": "d"}],
    "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "permission_suggestions": [{"a": 1}]},
}  # fmt: skip
_BLOCKS = [
    {"type": "text", "text": "t"}, {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "d"},
    {"type": "tool_use", "id": "i", "name": "Bash", "input": {"command": "ls"}}, {"type": "server_tool_use", "id": "i", "name": "w"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, {"type": "document", "source": {}},
]  # fmt: skip
_RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "result": "done", "total_cost_usd": 0.5, "num_turns": 1, "errors": ["e"],
    "usage": {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 1}}, "stop_reason": "end_turn",
    "permission_denials": [{"tool_name": "Bash"}], "structured_output": {"a": [1, {"b": None}]}, "terminal_reason": "completed",
    "model_usage_since_last_result": {"m": {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 0, "costUSD": 0.1}},
    "api_error_status": 429, "api_error": "usage_limit_reached", "api_error_type": "rate_limit_error",
    "origin": {"kind": "task-notification"},
}  # fmt: skip


def _frames() -> list[dict[str, Any]]:
    kinds = [*RARE, *SILENT, "system/task_started", "system/task_progress", "system/task_updated", "system/task_notification",
             "system/background_tasks_changed", "rate_limit_event", "system/from_the_future", "from_the_future"]  # fmt: skip
    frames = [dict(zip(("type", "subtype"), kind.split("/"), strict=False)) | _FIELDS for kind in kinds]
    content = [*_BLOCKS, {"type": "tool_result", "tool_use_id": "i", "content": _BLOCKS, "is_error": True}]
    for kind in ("assistant", "user"):
        frames.append(
            {"type": kind, "message": {"id": "m", "model": "x", "content": content}, "parent_tool_use_id": None}
        )
        frames.append({"type": kind, "message": {"id": "m", "content": "plain"}, "isReplay": True, "isSynthetic": True})
    deltas = [
        ("text_delta", "text"),
        ("thinking_delta", "thinking"),
        ("input_json_delta", "partial_json"),
        ("signature_delta", "s"),
    ]
    events: list[dict[str, Any]] = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: "some text"}}
        for kind, field in deltas
    ]
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 0},
        {"type": "ping"},
    ]
    events += [
        {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 1}}},
        {"type": "message_stop"},
    ]
    events += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}]
    abandoned = {"api_message_id": "m", "from_block_index": 0}
    frames += [{"type": "stream_event", "event": event, "abandoned_blocks": abandoned} for event in events]
    return [*frames, _RESULT, _RESULT | {"is_error": True, "model_usage_since_last_result": None}]


class _Conversation:
    """Some lines in a row of one recording or of the made frames, one or two of them spoiled, and sometimes torn at the end.

    Nine of ten recorded lines are text deltas: it begins at a line of a kind drawn first, so that all kinds come equally often.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        talks = _talks()
        kinds: dict[tuple[str, ...], list[tuple[list[Seed], int]]] = {}
        for talk in talks:
            for at, seed in enumerate(talk):
                kinds.setdefault(_kind(seed.data), []).append((talk, at))
        self._kinds = list(kinds.values())
        self._mutator = Mutator([seed for talk in talks for seed in talk if len(seed.data) <= LONG], rng)

    def __call__(self) -> bytes:
        chance = self._rng.random
        places = self._kinds[int(chance() * len(self._kinds))]
        talk, at = places[int(chance() * len(places))]
        count = 1 + int(chance() * chance() * 5)
        lines = []
        for number, seed in enumerate(talk[at : at + count]):
            if len(seed.data) > LONG and chance() < 0.97:
                continue
            lines.append(self._mutator.mutate(seed) if number == 0 or chance() < 0.2 else seed.data)
        if chance() < 0.1:
            self._rng.shuffle(lines)
        return b"\n".join(lines) + (b"\n" if chance() < 0.9 else b"")


@cache
def _talks() -> list[list[Seed]]:
    """The recordings, and the made frames as one more."""
    recorded = [[Seed(line) for line in path.read_bytes().split(b"\n") if line] for path in RECORDINGS]
    return [*recorded, [Seed(as_line(frame)) for frame in _frames()]]


def _kind(line: bytes) -> tuple[str, ...]:
    frame = json.loads(line)
    told = frame.get("event")
    event = told if isinstance(told, dict) else {}
    words = frame.get("type"), frame.get("subtype"), event.get("type"), (event.get("delta") or {}).get("type")
    return tuple(str(word) for word in words)


class _Lines:
    """A few spoiled lines of a list of good ones."""

    def __init__(self, rng: random.Random, lines: list[bytes], *, most: int = 3) -> None:
        self._rng = rng
        self._mutator = Mutator([Seed(line) for line in lines], rng)
        self._most = most

    def __call__(self) -> bytes:
        count = 1 + int(self._rng.random() * self._most)
        lines = [self._mutator.mutate(self._mutator.pick()) for _ in range(count)]
        return b"\n".join(lines) + (b"\n" if self._rng.random() < 0.9 else b"")


class _Bytes:
    """Noise with newlines in it, for what does not read but only cuts."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self) -> bytes:
        size = int(self._rng.random() ** 3 * 3000)
        data = self._rng.randbytes(size)
        if self._rng.random() < 0.2:
            return data.replace(b"\n", b"x") + b"\n"  # one long line
        common = self._rng.choice((b"", b"\n", b"ab\n", bytes(range(0, 250, 3))))
        return data.translate(bytes(256 - len(common)) + common) if common and self._rng.random() < 0.7 else data


_PARAMS: dict[str, Any] = {
    "session_id": SESSION, "backend": "demo", "cwd": "/tmp", "prompt": "hi", "key": "k", "wait": True, "when_busy": "queue",
    "expand": False, "turn_id": "t1", "mode": "kill", "after_seq": 0, "limit": 10, "types": ["notice"], "deltas": True, "raw": False,
    "blob": "raw-1-out-0-9", "offset": 0, "name": "demo",
    "env": {"A": "b"}, "protocol_version": 1, "client": {"name": "c", "version": "1"}, "model": "m",
    "system_prompt": "s", "permission_mode": "default", "mcp_config": {"a": {}}, "timeouts": {"startup": 1, "turn": 2.5},
    "labels": {"a": "b"}, "resume_native_id": SESSION, "state": "idle", "cursor": SESSION,
}  # fmt: skip


def _requests() -> list[bytes]:
    frames = []
    for name, method in METHODS.items():
        fields = {field: _PARAMS[field] for field in method.params.model_fields if field in _PARAMS}
        frames += [
            {"jsonrpc": "2.0", "id": 1, "method": name, "params": fields},
            {"id": "a", "method": name, "params": fields},
        ]
    blocks = {"session_id": SESSION, "prompt": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    frames.append({"id": 2, "method": "session/prompt", "params": blocks})
    frames.append({"method": "$/cancel_request", "params": {"id": 3}})
    return [as_line(frame) for frame in frames]


def _answers() -> list[bytes]:
    error = {
        "code": -32010,
        "message": "cannot",
        "data": {"kind": "session_not_found", "retryable": False, "hint": "h", "more": 1},
    }
    kinds = [{"id": 1, "error": {**error, "data": {"kind": kind}}} for kind in KINDS]
    event = {
        "session_id": SESSION,
        "seq": 1,
        "ts": "t",
        "turn_id": "t1",
        "source": "daemon",
        "type": "notice",
        "code": "c",
    }
    return [as_line(frame) for frame in ({"id": 1, "result": {"a": [1]}}, {"id": 1, "error": error}, {"method": "session/event",
            "params": event}, *kinds)]  # fmt: skip


def _block(raw: bytes, seq: int, src: Source, memo: dict[str, Any]) -> bytes:
    return block_of(raw, raw, first=seq, src=src, memo=memo)


def _old_line(raw: bytes, _seq: int, src: Source, memo: dict[str, Any]) -> bytes:
    return old_line(raw, src=src, memo=memo)


def _journal() -> list[bytes]:
    events = [
        Notice(code="c", message="m"),
        StderrLine(text="t"),
        TurnStarted(run=1),
        TurnCompleted(outcome="completed", text="t"),
    ]
    lines = []
    for at, event in enumerate(events, 1):
        raw = encode_event(event, session_id=SESSION, seq=at, ts="2026-01-01T00:00:00Z", turn_id="t1", source="daemon")
        memo = {"run": 1, "begin": {"out": 0, "err": 0}}
        lines += [form(raw, at, Source(1, "out", 0, 9, at), memo)[:-1] for form in (_block, _old_line)]
    return [*lines, encode_snapshot(Ledger().snapshot())[:-1]]


_CONFIG = b"""[daemon]
max_queue = 5
[daemon.retention]
keys = 10
[backends.demo]
command = ["demo"]
[backends.demo.timeouts]
turn = 1.5
[backends.demo.limits]
memory = 1000000
"""


def _scrub_lists() -> list[bytes]:
    files = [path.read_bytes() for path in sorted((ROOT / "scrub_lists").iterdir()) if path.is_file()]
    lines = [line for data in files for line in data.split(b"\n") if line]
    return [*lines, b"A_* | a reason | a source", b"@pair A_URL: A_KEY B_KEY | r | s", b"@include common"]


def _recordings() -> list[bytes]:
    """The meta file is the first line of an input, so each of these may be one, or be a line of the output."""
    meta = {"format": 1, "kind": "claude", "cli_version": "2", "argv": ["claude"], "environment": ["HOME"], "prompt": "hi",
            "exit_code": None, "signal": "SIGTERM", "stderr": "x", "reason": "exit", "duration_s": 1.5, "outcome": "failed",
            "launch": {"native_session_id": SESSION, "resume": False, "cwd": "/x", "model": None, "args": ["-x"]},
            "carried": {"cost_usd": 0.5, "usage": {"input_tokens": 1}, "background": ["b"]}, "timing": [[5, 0.5]], "said": [[0, None]],
            "ending": {"reason": "watchdog:model", "limit_s": 3, "error": {"kind": "server", "message": "m"}}}  # fmt: skip
    secret = 'canary "of" all\\secrets'
    delta = {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
    }
    frames = [
        {**delta, "text": secret[:9]},
        {**delta, "text": secret[9:]},
        {"a": secret, secret: ["/home/alice/x", "sk-" + "a" * 20]},
    ]
    return [as_line(meta), as_line({"kind": "claude", "prompt": "hi"}), *map(as_line, frames)]


def _transcript() -> list[bytes]:
    """Entries of a CLI's transcript, and the file of a process that has one open."""
    entry = {
        "parentUuid": None,
        "isSidechain": False,
        "type": "user",
        "uuid": "u1",
        "sessionId": SESSION,
        "timestamp": "t",
    }
    answer = {"id": "m1", "role": "assistant", "model": "<synthetic>", "content": _BLOCKS}
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "logicalParentUuid": "u2",
        "parentUuid": None,
        "uuid": "u4",
    }
    result = [{"type": "tool_result", "tool_use_id": "i", "content": "ok"}]
    entries = [
        {**entry, "message": {"role": "user", "content": "one"}},
        {**entry, "type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": answer},
        {**entry, "uuid": "u3", "parentUuid": "u2", "message": {"role": "user", "content": result}},
        {**entry, **boundary},
        {**entry, "uuid": "u5", "parentUuid": "u4", "isCompactSummary": True, "message": {"content": "sum"}},
        {"type": "last-prompt", "leafUuid": "u2", "sessionId": SESSION},
        {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": 1.5},
        {"pid": 7, "sessionId": SESSION, "procStart": "73330", "pidDomain": "linux:3d12:pid:[4026531836]"},
    ]
    return [as_line(value) for value in entries]


MAKERS: dict[str, Callable[[random.Random], Maker]] = {
    "decoder": _Conversation,
    "framer": _Bytes,
    "wire": lambda rng: _Lines(rng, _requests()),
    "client": lambda rng: _Lines(rng, _answers(), most=1),
    "journal": lambda rng: _Lines(rng, _journal()),
    "lists": lambda rng: _Lines(rng, _scrub_lists(), most=5),
    "config": lambda rng: _Lines(rng, [_CONFIG, *_CONFIG.split(b"\n")[:-1]], most=4),
    "recording": lambda rng: _Lines(rng, _recordings()),
    "transcript": lambda rng: _Lines(rng, _transcript(), most=8),
    "pages": HttpBytes,
    "gateway": HttpBytes,
}
"""For each target, what makes its inputs from one random generator."""
