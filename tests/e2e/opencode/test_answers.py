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


def test_a_tool_that_needs_a_permission_ends_the_turn_unless_the_mode_allows_it(lab: Start) -> None:
    here = lab("tool_rejected")
    turn = here.turn("Use your tools.")
    (denied,) = here.events(turn["session_id"], "permission_denied")
    assert (turn["outcome"], turn["error"]["kind"], turn["denied"]) == ("failed", "permission", ["write"])
    assert denied["name"] == "write" and not (here.cwd / "x.txt").exists()
    there = lab("mode_auto")
    assert there.turn("Use your tools.", permission_mode="auto")["text"] == "Written."
    assert (there.cwd / "x.txt").read_text() == "x"
