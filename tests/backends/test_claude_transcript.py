"""What a transcript says of a prompt whose end nobody saw."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.claude.adapter import ClaudeAdapter


def lines(*entries: Any) -> bytes:
    return b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)


def user(content: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, "uuid": "u1"}


ANSWER = {"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}, "uuid": "a1"}
NOISE = [{"type": "queue-operation", "operation": "enqueue"}, {"type": "attachment"}, [], 1, {"type": "user"}]


@pytest.mark.parametrize("content", ["Say hello.", "\nSay hello.\n", [{"type": "text", "text": "Say hello."}]])
def test_a_prompt_is_found_as_the_cli_writes_it(content: Any) -> None:
    assert ClaudeAdapter().transcript_says(lines(*NOISE, user(content)), "Say hello.") == "prompt_found"


def test_an_answer_after_the_prompt_is_found() -> None:
    assert ClaudeAdapter().transcript_says(lines(user("Say hello."), *NOISE, ANSWER), "Say hello.") == "answered"


def test_an_answer_before_the_prompt_is_another_turns() -> None:
    assert ClaudeAdapter().transcript_says(lines(ANSWER, user("Say hello.")), "Say hello.") == "prompt_found"


@pytest.mark.parametrize("data", [b"", lines(user("Say goodbye."), ANSWER), lines(user([{"type": "tool_result"}]))])
def test_a_prompt_that_is_not_there_is_not_found(data: bytes) -> None:
    assert ClaudeAdapter().transcript_says(data, "Say hello.") == "prompt_not_found"


def test_a_torn_last_line_is_nothing_and_noise_is_no_error() -> None:
    torn = lines(user("Say hello."))[:-4]
    assert ClaudeAdapter().transcript_says(torn, "Say hello.") == "prompt_not_found"
    assert (
        ClaudeAdapter().transcript_says(
            b"\xff\xfe\n" + b"[" * 100_000 + b"\n" + lines(user("Say hello.")), "Say hello."
        )
        == "prompt_found"
    )
