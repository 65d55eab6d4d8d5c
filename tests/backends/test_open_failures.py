"""A failure that a CLI tells without an end of its turn explains the silence that may follow, until the CLI goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.base import Carried, Decoder, LaunchRequest
from clisup.backends.registry import get_adapter
from clisup.model.lines.framing import Line

Frame = dict[str, Any]
PART = {"messageID": "m1", "type": "step-start"}
THREAD = {"id": 2, "result": {"thread": {"id": "t"}, "sandbox": {"type": "readOnly"}}}
USAGE_LIMIT = {"message": "You've hit your usage limit.", "codexErrorInfo": "usageLimitExceeded"}
ITEM = {"type": "agentMessage", "id": "i", "text": ""}
SYNTHETIC = {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 529"}]}
ANSWER = {"id": "m1", "model": "opus", "content": [{"type": "text", "text": "Well."}]}

TOLD: dict[str, tuple[list[Frame], Frame, str, str]] = {
    "codex": (
        [THREAD, {"method": "error", "params": {"threadId": "t", "willRetry": False, "error": USAGE_LIMIT}}],
        {"method": "item/started", "params": {"threadId": "t", "item": ITEM}},
        "quota_exceeded",
        "hit your usage limit",
    ),
    "codex-exec": (
        [{"type": "error", "message": "git failed: not a valid object name"}],
        {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "Well."}},
        "crashed",
        "not a valid object name",
    ),
    "gemini": (
        [{"type": "error", "severity": "error", "message": "Loop detected, stopping execution"}],
        {"type": "message", "role": "assistant", "content": "Well."},
        "max_turns",
        "Loop detected",
    ),
    "opencode": (
        [{"type": "error", "error": {"name": "ContextOverflowError", "data": {"message": "Input exceeds it"}}}],
        {"type": "step_start", "part": PART},
        "context_overflow",
        "Input exceeds it",
    ),
    "claude": (
        [{"type": "assistant", "message": SYNTHETIC, "error": "overloaded", "session_id": "s"}],
        {"type": "assistant", "message": ANSWER, "session_id": "s"},
        "overloaded",
        "529",
    ),
}


def decoder_of(kind: str) -> Decoder:
    request = LaunchRequest((kind,), "Hi.", None, resume=False, cwd="/w")
    return get_adapter(kind).decoder(Carried(), request)


def feed(decoder: Decoder, frame: Frame) -> None:
    data = json.dumps(frame).encode()
    assert decoder.decode(Line(0, len(data), data)).terminal is None


@pytest.mark.fault(102)
@pytest.mark.parametrize("kind", TOLD)
def test_a_failure_without_an_end_is_open_work_until_the_cli_goes_on(kind: str) -> None:
    told, goes_on, error_kind, words = TOLD[kind]
    decoder = decoder_of(kind)
    assert decoder.open_work.failure is None
    for frame in told:
        feed(decoder, frame)
    failure = decoder.open_work.failure
    assert failure is not None and failure.kind == error_kind and words in failure.message
    feed(decoder, goes_on)
    assert decoder.open_work.failure is None


def test_a_request_that_codex_repeats_is_no_open_failure() -> None:
    decoder = decoder_of("codex-exec")
    feed(decoder, {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"})
    assert decoder.open_work.failure is None
