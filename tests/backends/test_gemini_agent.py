"""Live gemini: an ACP agent with gemini's own flags, ids, names of tools and failures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.base import Carried, Decoder, LaunchRequest
from clisup.backends.gemini.adapter import GeminiAdapter
from clisup.errors import UsageError
from clisup.model.lines.framing import Line
from tests.backends.recorded import Recording

ADAPTER = GeminiAdapter()
SESSION = "9e1a2e0d-9dd0-445b-a72f-4bbeb3fdbc9b"
REQUEST = LaunchRequest(
    command=("/bin/gemini",), prompt="Say hello.", native_session_id=None, resume=False, cwd="/work", live=True, prompt_id="p"
)  # fmt: skip
LATER = replace(REQUEST, native_session_id=SESSION, later=True)


def hear(decoder: Decoder, **frame: Any) -> list[dict[str, Any]]:
    """What the decoder replies to a frame."""
    data = json.dumps({"jsonrpc": "2.0", **frame}).encode()
    return [json.loads(str(reply)) for reply in decoder.decode(Line(0, len(data) + 1, data, False, True)).replies]


def test_the_flags_are_those_of_headless_mode_without_a_session() -> None:
    request = replace(REQUEST, model="m", permission_mode="yolo", tools=("add",), mcp_servers={})
    spec = ADAPTER.launch(request)
    assert spec.argv == (
        "/bin/gemini", "--acp", "--skip-trust", "--allowed-tools=mcp_clisup_*", "--model=m", "--approval-mode=yolo",
    )  # fmt: skip
    assert json.loads(spec.stdin)["method"] == "initialize"
    assert (spec.stdin_eof, spec.stdout_mode) == (False, "pipe")
    one_shot = ADAPTER.launch(replace(REQUEST, live=False, native_session_id="_a"))
    assert (spec.env, spec.closed_env, spec.stale_locks) == (one_shot.env, one_shot.closed_env, one_shot.stale_locks)


@pytest.mark.parametrize(("resumed", "name"), [(False, SESSION), (True, f" {SESSION}")])
def test_a_process_knows_a_loaded_session_by_another_name(resumed: bool, name: str) -> None:
    request = replace(LATER, resume=resumed)
    assert json.loads(ADAPTER.launch(request).stdin)["params"]["sessionId"] == name
    assert json.loads(ADAPTER.decoder(Carried(), request).interrupt() or "")["params"]["sessionId"] == name


def test_a_session_is_loaded_under_that_name_and_told_without_it() -> None:
    decoder = ADAPTER.decoder(Carried(), replace(REQUEST, native_session_id=SESSION, resume=True, model="m"))
    can = {"protocolVersion": 1, "agentInfo": {"name": "gemini-cli"}, "agentCapabilities": {"loadSession": True}}
    (load,) = hear(decoder, id=0, result=can)
    assert (load["method"], load["params"]["sessionId"]) == ("session/load", f" {SESSION}")
    (init,) = Recording.of("gemini/live_memory_resume").events("session_init")
    assert init.native_session_id == Recording.of("gemini/live_memory_resume").meta["launch"]["native_session_id"]


def test_an_id_that_gemini_reads_as_something_else_is_refused() -> None:
    with pytest.raises(UsageError):
        ADAPTER.launch(replace(REQUEST, native_session_id="latest", resume=True))


def test_tools_have_their_names_and_mcp_tools_their_input_and_words() -> None:
    (shell,) = Recording.of("gemini/live_allowed").events("tool_use")
    assert (shell.name, shell.input["title"]) == ("run_shell_command", "touch made.txt")
    (call,) = Recording.of("gemini/live_mcp").events("tool_use")
    (result,) = Recording.of("gemini/live_mcp").events("tool_result")
    assert (call.name, call.input) == ("mcp_tools_fail", {"a": "b"})
    assert result.is_error and not result.content.startswith("MCP tool")


def test_the_kind_of_a_failure_is_that_of_headless_mode() -> None:
    for name in ("http_401", "empty", "thinking", "text"):
        live, one_shot = Recording.of(f"gemini/live_{name}").terminal(), Recording.of(f"gemini/{name}").terminal()
        kinds = [end.error and (end.error.kind, end.error.http_status) for end in (live, one_shot)]
        assert kinds[0] == kinds[1] and live.text == one_shot.text


def test_usage_without_thoughts_is_an_estimate() -> None:
    usage = Recording.of("gemini/live_text").terminal().usage
    assert (usage.input_tokens, usage.output_tokens, usage.source) == (1000, 40, "estimated")


def test_max_tokens_is_a_conversation_that_no_longer_fits_and_of_other_agents_an_answer_that_was_cut() -> None:
    stopped = {"jsonrpc": "2.0", "id": "prompt-p", "result": {"stopReason": "max_tokens"}}
    data = json.dumps(stopped).encode()
    terminals = [
        adapter.decoder(Carried(), LATER).decode(Line(0, len(data) + 1, data, False, True)).terminal
        for adapter in (ADAPTER, AcpAdapter())
    ]
    assert [terminal and terminal.error and terminal.error.kind for terminal in terminals] == [
        "context_overflow",
        "output_limit",
    ]
