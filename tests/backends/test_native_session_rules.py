"""What transcripts of real CLIs tell of a session. tests/e2e/test_native_session_lists.py recorded them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clisup.backends.claude.native_sessions import ClaudeNativeSessions
from clisup.backends.codex.native_sessions import CodexNativeSessions
from clisup.backends.native_sessions import NativeSession, NativeSessionRules
from clisup.backends.registry import get_adapter, kinds

CLAUDE, CODEX = ClaudeNativeSessions(), CodexNativeSessions()


def recorded(name: str) -> Path:
    [path] = (Path(__file__).parent / "native_sessions" / name).iterdir()
    return path


def read(rules: NativeSessionRules, name: str) -> NativeSession:
    path = recorded(name)
    found = rules.read(path.name, path.read_bytes(), path.read_bytes())
    assert found is not None and found.native_session_id in path.name
    assert found.cwd is not None and found.cwd.startswith("/tmp/") and found.started_at is not None
    return found


def test_a_session_of_claudes_terminal_has_the_first_prompt_and_its_own_title() -> None:
    found = read(CLAUDE, "claude_terminal")
    assert (found.prompt, found.title) == ("Which files are here?", "My own name")


def test_a_session_of_a_script_has_its_prompt() -> None:
    found = read(CLAUDE, "claude_print")
    assert (found.prompt, found.title) == ("My name is Ada.", None)


def test_a_session_of_codex_has_its_first_prompt() -> None:
    assert read(CODEX, "codex_exec").prompt == "Say hello from codex."


def test_a_session_of_a_sub_agent_is_no_session_of_a_person() -> None:
    path = recorded("codex_exec")
    data = path.read_bytes().replace(b'"thread_source":"user"', b'"thread_source":"subagent"')
    assert CODEX.read(path.name, data, data) is None


@pytest.mark.parametrize("rules", [CLAUDE, CODEX])
@pytest.mark.parametrize("name", ["claude_terminal", "codex_exec"])
def test_no_cut_and_no_other_file_is_an_error(rules: NativeSessionRules, name: str) -> None:
    data = recorded(name).read_bytes()
    for end in (0, 1, 100, len(data) // 2, len(data) - 3):
        rules.read(recorded(name).name, data[:end], data[end:])
    noise = b"\xff\n[1]\n" + b'{"a":' * 5000 + b"\n" + json.dumps({"type": "user", "message": 7}).encode()
    noise += (
        b'\n{"type":"session_meta","payload":{"cwd":7,"git":[]}}\n{"type":"user","message":{"content":[{"text":1}]}}'
    )
    for file in ("x.jsonl", recorded(name).name, ".jsonl"):
        rules.read(file, noise, noise)


@pytest.mark.parametrize("kind", kinds())
def test_a_pattern_begins_in_the_home_of_the_backend_alone(kind: str) -> None:
    rules = get_adapter(kind).native_sessions
    if rules is None:
        assert kind not in ("claude", "codex", "codex-exec", "demo")
        return
    pattern = rules.pattern("/srv/[a] b", {"HOME": "/home/me"})
    assert pattern is not None and pattern.startswith("/home/me/")
    assert rules.pattern("/srv/app", {}) is None
