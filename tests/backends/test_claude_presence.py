"""What claude's own files and flags say of the session that a process has open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.claude.transcript import ClaudePresence
from clisup.backends.demo import DemoAdapter
from clisup.policy.cli_files import Presence

NATIVE = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"
SAID = {
    "pid": 17299,
    "sessionId": NATIVE,
    "cwd": "/work",
    "startedAt": 1795312148093,
    "procStart": "73330",
    "version": "2.1.329",
    "kind": "interactive",
    "entrypoint": "sdk-cli",
    "pidDomain": "linux:3d1219c7c4c5404aaa1f6d2a48adfda4:pid:[4026531836]",
    "status": "busy",
}
RULES = ClaudePresence()


def read(name: str = "17299.json", **changes: Any) -> Presence | None:
    return RULES.read(name, json.dumps({**SAID, **changes}).encode())


def test_the_file_of_2_1_329_is_read() -> None:
    assert read() == Presence(17299, NATIVE, 73330, "pid:[4026531836]")


@pytest.mark.parametrize("name", ["17298.json", "17299.bd13.key", "017299.json", "x.json", "17299.json.tmp", "0.json"])
def test_a_file_of_another_name_is_none(name: str) -> None:
    assert read(name) is None


@pytest.mark.parametrize("start", [None, "", "-1", "1.5", "\u0663", [], "9" * 20])
def test_a_start_time_that_is_none_is_unknown(start: Any) -> None:
    assert read(procStart=start) == Presence(17299, NATIVE, None, "pid:[4026531836]")


def test_the_directory_follows_the_configuration_directory() -> None:
    assert RULES.directory({"HOME": "/h"}) == "/h/.claude/sessions"
    assert RULES.directory({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c/"}) == "/c/sessions"
    assert RULES.directory({}) is None
    assert DemoAdapter.presence.directory({"HOME": "/h"}) == "/h/.local/state/clisup-demo/sessions"


@pytest.mark.parametrize(
    ("words", "native"),
    [
        (b"claude -p --resume=%s", NATIVE),
        (b"/x/claude --session-id %s --verbose", NATIVE),
        (b"claude -r %s", NATIVE),
        (b"claude --resume /h/.claude/projects/-work/%s.jsonl", NATIVE),
        (b"claude --resume 11111111-1111-4111-8111-111111111111 --fork-session --session-id %s", NATIVE),
        (b"claude --resume=%s --fork-session", None),
        (b"claude --resume", None),
        (b"claude -p %s", None),
        (b"less --resume=%s", None),
        (b"", None),
    ],
)
def test_a_command_line_names_the_session_that_it_writes(words: bytes, native: str | None) -> None:
    line = words % NATIVE.encode() if b"%s" in words else words
    assert RULES.opened(line.split(b" ")) == native
