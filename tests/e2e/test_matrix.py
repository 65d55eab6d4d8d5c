"""The same script through the daemon with every real CLI: the same story, up to the differences that docs/backends names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.contract import essence, expected, frame_faults
from clisup.backends.registry import get_adapter
from tests.e2e.labs import CLIS, Cli, each

pytestmark = pytest.mark.e2e
FAILS = {
    "claude": "Exit code 7",
    "codex": "exit code 3\nout\n",
    "codex-exec": "exit code 3\nout\n",
    "qwen": "Exit Code: 7",
    "gemini": "not found",
    "opencode": "oops",
    "acp": "Exit Code: 7",
}
"""What the result of `tool_fail` says."""
HOSTILE: dict[str, tuple[str, str]] = {
    "claude": ("/cost and @secret.txt", "/cost and @secret.txt"),
    "codex": ("--help\n/status @secret $skill", "--help\n/status @secret $skill"),
    "codex-exec": ("--help\n/status @secret $skill", "--help\n/status @secret $\u200bskill"),
    "qwen": ("/clear and @secret.txt", "/clear and \\@secret.txt"),
    "gemini": ("/help and @secret.txt", "/help and \\@secret.txt"),
    "opencode": ('/init "quoted" @secret.txt !ls $HOME\nline two', '/init "quoted" @secret.txt !ls $HOME\nline two'),
    "acp": ("  /about @secret.txt", "\u200b  /about @secret.txt"),
}
"""A prompt, and what the model is sent of it."""


def told_by(cli: Cli, case: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Play the case, hold its story to the contract, and give the turn and the events."""
    with cli.playing(case) as here:
        turn = here.turn("Use your tools, then say what you think.", **cli.free)
        events = here.events(turn["session_id"])
    told = essence(events)
    can = get_adapter(cli.kind).capabilities.of(live=False)
    assert told == expected(case, told, thinking=can.thinking), events[-1]
    assert frame_faults(events) == []
    assert [event["type"] for event in events].count("turn_completed") == 1
    assert next(event for event in events if event["type"] == "process_started")["env_attested"] is True
    return turn, events


@each()
def test_one_script_one_story_with_reasoning(cli: Cli) -> None:
    turn, events = told_by(cli, "reasoning")
    blocks = [block for event in events if event["type"] == "message" for block in event["blocks"]]
    told = [(block["kind"], block["text"]) for block in blocks if block["kind"] != "redacted_thinking"]
    thoughts = [] if cli.kind == "gemini" else [("thinking", "Let me think.")]
    assert told == [*thoughts, ("text", "Thought.")] and turn["text"] == "Thought."
    deltas = [(event["kind"], event["index"]) for event in events if event["type"] == "content_delta"]
    assert cli.kind != "qwen" or deltas == [("thinking", 0), ("thinking", 0), ("text", 1)]


@pytest.mark.parametrize("case", ["tool_ok", "tool_fail"])
@each()
def test_one_script_one_story_with_a_tool(cli: Cli, case: str) -> None:
    turn, events = told_by(cli, case)
    (use,), (result,) = ([event for event in events if event["type"] == kind] for kind in ("tool_use", "tool_result"))
    assert use["tool_use_id"] == result["tool_use_id"] and turn["text"] in ("It said hi.", "It failed.", "done")
    if case == "tool_fail":
        assert FAILS[cli.kind] in result["content"]
    else:
        output = "out" if "codex" in cli.kind else "hi"
        assert use["name"] == cli.tool and f"echo {output}" in str(use["input"])
        assert result["content"].strip() == output or (cli.kind == "acp" and f"Output: {output}" in result["content"])
    first, second = cli.voice.usage(0), cli.voice.usage(1)
    assert {name: first[name] + second[name] for name in first}.items() <= turn["usage"].items()


@each(but="gemini")
def test_a_resumed_session_remembers_its_first_turn_and_counts_each_turn_alone(cli: Cli) -> None:
    with cli.playing(cli.voice.remember) as here:
        first = here.turn("My name is Ada.")
        second = here.turn("What did I say?", session=first["session_id"])
        assert "My name is Ada." in second["text"] and len(here.api.main_requests) == 2
        for n, turn in enumerate((first, second)):
            assert {**cli.voice.usage(n), "source": "reported"}.items() <= turn["usage"].items()
        if cli.kind == "claude":
            assert 0 < second["cost_usd"] < 1.5 * first["cost_usd"]
        assert len({event["native_session_id"] for event in here.events(first["session_id"], "session_init")}) == 1


@pytest.mark.fault(69)
@each()
def test_a_prompt_that_looks_like_a_command_or_a_file_reaches_the_model_as_text(cli: Cli) -> None:
    prompt, sent = HOSTILE[cli.kind]
    with cli.playing("text") as here:
        (here.cwd / "secret.txt").write_text("the file's own words")
        turn = here.turn(prompt)
        asked = json.dumps(here.api.main_requests[0].body, ensure_ascii=False)
        assert json.dumps(sent, ensure_ascii=False)[1:-1] in asked and "the file's own words" not in asked
        assert bool(here.altered(turn)) is (cli.kind not in ("codex", "opencode"))


@pytest.mark.parametrize(("kind", "size"), [("claude", 3_000_000), ("qwen", 2_000_000), ("opencode", 2_000_000)])
def test_an_answer_of_megabytes_arrives_whole(kind: str, size: int) -> None:
    with CLIS[kind].playing("big_text") as here:
        turn = here.turn()
        ends = here.events(turn["session_id"])
        completed, exited = (
            next(event for event in ends if event["type"] == kind) for kind in ("turn_completed", "process_exited")
        )
        assert (turn["outcome"], len(turn["text"]), exited["exit_code"]) == ("completed", size, 0)
        assert len(completed["text"]) < 300_000
        with here.client() as client:
            assert client.blob(turn["session_id"], completed["blob"]).decode() == turn["text"]
