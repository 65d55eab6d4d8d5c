"""Answers, tools and sessions of the real Qwen Code, through the daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab import text_of
from tests.e2e.qwen.lab import QwenLab
from tests.versions import VERSIONS

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}


@pytest.mark.fault(72)
def test_a_text_answer_of_the_worker_behind_the_launcher_streams_and_is_confirmed_whole(
    lab: Callable[..., QwenLab],
) -> None:
    here = lab("text")
    turn = here.turn()
    events = here.events(turn["session_id"])
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta")
    init = here.events(turn["session_id"], "session_init")[0]
    argv = here.events(turn["session_id"], "process_started")[0]["argv"]
    assert (argv[0].endswith("/bin/node"), argv[1], argv[2].endswith("/cli.js")) == (True, "--expose-gc", True)
    assert turn["outcome"] == "completed"
    assert turn["text"] == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    assert deltas == turn["text"] == text_of(events)
    assert not [e for e in events if e["type"] == "unparsed"]
    assert init["native_session_id"] == turn["session_id"] and init["backend_version"] == VERSIONS["qwen"]


def test_reasoning_comes_as_its_own_kind(lab: Callable[..., QwenLab]) -> None:
    here = lab("reasoning")
    turn = here.turn()
    blocks = [b["kind"] for e in here.events(turn["session_id"], "message") for b in e["blocks"]]
    deltas = [(e["kind"], e["index"]) for e in here.events(turn["session_id"], "content_delta")]
    assert blocks == ["thinking", "text"]
    assert deltas == [("thinking", 0), ("thinking", 0), ("text", 1)]
    assert turn["text"] == "Thought."


def test_parallel_tools_each_get_their_own_result(lab: Callable[..., QwenLab]) -> None:
    here = lab("parallel_tools")
    turn = here.turn("Use your tools.", **YOLO)
    uses = {e["tool_use_id"]: e["input"]["command"] for e in here.events(turn["session_id"], "tool_use")}
    results = {e["tool_use_id"]: e["content"] for e in here.events(turn["session_id"], "tool_result")}
    assert uses == {"call_a": "echo a", "call_b": "echo b"}
    assert results == {"call_a": "a", "call_b": "b"}
    assert turn["outcome"] == "completed" and turn["text"] == "Done."


def test_a_failing_tool_is_an_error_result_and_the_turn_goes_on(lab: Callable[..., QwenLab]) -> None:
    here = lab("tool_fail")
    turn = here.turn("Use your tools.", **YOLO)
    result = here.events(turn["session_id"], "tool_result")[0]
    assert result["is_error"] and "Exit Code: 7" in result["content"]
    assert turn["outcome"] == "completed" and turn["text"] == "It failed."


def test_without_a_mode_shell_and_edits_are_denied_and_said_so(lab: Callable[..., QwenLab]) -> None:
    here = lab("tool_denied")
    turn = here.turn("Use your tools.")
    denied = here.events(turn["session_id"], "permission_denied")
    assert turn["outcome"] == "completed"
    assert turn["denied"] == ["write_file", "run_shell_command"] == [event["name"] for event in denied]
    assert "permission" in denied[0]["reason"]


def test_a_resumed_session_remembers_and_each_turns_usage_is_its_own(lab: Callable[..., QwenLab]) -> None:
    """The CLI counts on over resumes, includes cached tokens in the input, and would ask a second time for its memory."""
    here = lab("memory")
    first = here.turn("My name is Ada.")
    second = here.turn("What did I say?", session=first["session_id"])
    assert "My name is Ada." in second["text"]
    assert [first["usage"][name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")] == [
        700,
        300,
        40,
    ]
    assert [second["usage"][name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")] == [
        700,
        301,
        41,
    ]
    assert second["usage"]["source"] == "reported"
    assert len(here.api.requests) == 2


def test_an_answer_of_2_mb_arrives_whole(lab: Callable[..., QwenLab]) -> None:
    here = lab("big_text")
    turn = here.turn()
    assert turn["outcome"] == "completed" and len(turn["text"]) == 2_000_000
    assert here.events(turn["session_id"], "process_exited")[0]["exit_code"] == 0


@pytest.mark.fault(69)
def test_a_prompt_that_looks_like_a_command_or_a_file_reaches_the_model_as_text(lab: Callable[..., QwenLab]) -> None:
    here = lab("text")
    (here.cwd / "secret.txt").write_text("the file's own words")
    turn = here.turn("/clear and @secret.txt", system_prompt="Speak like a pirate.")
    sent = here.api.main_requests[0].body["messages"]
    assert "/clear and \\\\@secret.txt" in str(sent)
    assert "the file's own words" not in str(sent)
    assert here.events(turn["session_id"], "turn_started")[0]["prompt_altered"]
    assert sent[0]["role"] == "system"
    assert "Speak like a pirate." in str(sent[0]) and "You are Qwen Code" in str(sent[0])
    assert "pirate" not in str(here.events(turn["session_id"], "process_started")[0]["argv"])
