"""Answers, tools and sessions of the real opencode, through the daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab import text_of
from tests.e2e.opencode.lab import OpencodeLab

pytestmark = pytest.mark.e2e
Start = Callable[..., OpencodeLab]


def test_a_text_answer_comes_whole_and_costs_what_its_one_request_cost(lab: Start) -> None:
    here = lab("text")
    turn = here.turn()
    events = here.events(turn["session_id"])
    assert turn["outcome"] == "completed"
    assert turn["text"] == text_of(events) == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    assert not [e for e in events if e["type"] == "unparsed"]
    assert len(here.api.requests) == 1, "no second request for a title"
    usage = [turn["usage"][name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")]
    assert usage == [700, 300, 40]
    assert turn["cost_source"] == "estimated" and turn["cost_usd"] == pytest.approx(0.00078)


def test_reasoning_comes_as_its_own_kind(lab: Start) -> None:
    here = lab("reasoning")
    turn = here.turn()
    blocks = [b["kind"] for e in here.events(turn["session_id"], "message") for b in e["blocks"]]
    assert (blocks, turn["text"]) == (["thinking", "text"], "Thought.")


def test_parallel_tools_each_get_their_own_result_and_the_usage_is_that_of_both_steps(lab: Start) -> None:
    here = lab("parallel_tools")
    turn = here.turn("Use your tools.")
    uses = {e["tool_use_id"]: e["input"]["command"] for e in here.events(turn["session_id"], "tool_use")}
    results = {e["tool_use_id"]: e["content"] for e in here.events(turn["session_id"], "tool_result")}
    assert uses == {"call_a": "echo a", "call_b": "echo b"}
    assert results == {"call_a": "a\n", "call_b": "b\n"}
    assert (turn["outcome"], turn["text"]) == ("completed", "Done.")
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"]) == (1400, 81)


def test_a_failing_tool_is_an_error_result_and_the_turn_goes_on(lab: Start) -> None:
    here = lab("tool_fail")
    turn = here.turn("Use your tools.")
    result = here.events(turn["session_id"], "tool_result")[0]
    assert result["is_error"] and "oops" in result["content"]
    assert (turn["outcome"], turn["text"]) == ("completed", "It failed.")


def test_a_tool_that_needs_a_permission_ends_the_turn_unless_the_mode_allows_it(lab: Start) -> None:
    here = lab("tool_rejected")
    turn = here.turn("Use your tools.")
    (denied,) = here.events(turn["session_id"], "permission_denied")
    assert (turn["outcome"], turn["error"]["kind"], turn["denied"]) == ("failed", "permission", ["write"])
    assert denied["name"] == "write" and not (here.cwd / "x.txt").exists()
    there = lab("mode_auto")
    assert there.turn("Use your tools.", permission_mode="auto")["text"] == "Written."
    assert (there.cwd / "x.txt").read_text() == "x"


def test_a_resumed_session_remembers_and_each_turns_usage_is_its_own(lab: Start) -> None:
    here = lab("memory")
    first = here.turn("My name is Ada.")
    second = here.turn("What did I say?", session=first["session_id"])
    assert "My name is Ada." in second["text"]
    assert [turn["usage"]["cache_read_input_tokens"] for turn in (first, second)] == [300, 301]
    ids = {e["native_session_id"] for e in here.events(first["session_id"], "session_init")}
    assert len(ids) == 1 and ids.pop().startswith("ses_")


def test_an_answer_of_2_mb_arrives_whole(lab: Start) -> None:
    here = lab("big_text")
    turn = here.turn()
    assert turn["outcome"] == "completed" and len(turn["text"]) == 2_000_000


@pytest.mark.fault(69)
def test_a_prompt_is_text_whatever_it_looks_like(lab: Start) -> None:
    here = lab("text")
    (here.cwd / "secret.txt").write_text("the file's own words")
    prompt = '/init "quoted" @secret.txt !ls $HOME\nline two'
    turn = here.turn(prompt)
    sent = here.api.main_requests[0].body["messages"]
    assert [entry["content"] for entry in sent if entry["role"] == "user"] == [prompt]
    assert here.altered(turn) is None
    (started,) = here.events(turn["session_id"], "process_started")
    assert "secret.txt" not in str(started["argv"])
