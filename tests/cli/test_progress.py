"""The status line of `clisup run`: what it says, and that it never stands in what was printed."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.cli.views.progress import TurnProgress


def words(*events: dict[str, Any]) -> str:
    """What is said 100 s after the begin, if an event comes every 10 s."""
    progress = TurnProgress("claude", 0.0)
    for number, event in enumerate(events, 1):
        progress.take(event, float(number * 10))
    return progress.words(100.0)


INIT = {"type": "session_init"}
RETRY = {"type": "retry"}
USED = {"type": "message_stop", "usage": {"input_tokens": 1000, "output_tokens": 500}}
TOOL = {"type": "tool_use", "tool_use_id": "u", "name": "Bash", "input": {"command": "make test"}}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "starting claude 1 min 40 s"),
        ([INIT], "waiting for the model 1 min 30 s, 1 min 40 s in all"),
        ([{"type": "content_delta", "kind": "thinking"}], "thinking 1 min 30 s, 1 min 40 s in all"),
        ([{"type": "content_delta", "kind": "text"}] * 4, "writing 1 min 30 s, 1 min 40 s in all"),
        ([TOOL] * 5, "Bash make test 50 s, 1 min 40 s in all"),
        (
            [INIT, TOOL, TOOL, {"type": "tool_result", "tool_use_id": "u"}, RETRY],
            "waiting to try again 50 s, 1 min 40 s in all",
        ),
        ([TOOL, {"type": "approval_requested", "approval_id": "1:0"}], "waiting for your answer, 1 min 40 s in all"),
        ([USED, USED], "waiting for the model 1 min 30 s, 1 min 40 s in all, 3.0k tokens"),
        (
            [{"type": "usage", "usage": {"input_tokens": None, "output_tokens": 7}}],
            "starting claude 1 min 40 s, 7 tokens",
        ),
    ],
)
def test_it_says_what_the_turn_does(events: list[dict[str, Any]], said: str) -> None:
    assert words(*events) == said


def test_the_cost_is_told_once_it_is_known_and_read_again_after_each_usage() -> None:
    progress = TurnProgress("claude", 0.0)
    assert progress.due() is None
    progress.take({**USED, "turn_id": "t1"}, 1.0)
    assert (progress.due(), progress.due()) == ("t1", None)
    progress.cost_usd = 0.0421
    assert progress.words(2.0).endswith("1.5k tokens, ~$0.0421")


def test_it_wants_you_until_the_answer() -> None:
    progress = TurnProgress("claude", 0.0)
    progress.take({"type": "approval_requested", "approval_id": "1:0"}, 1.0)
    assert progress.wants_you
    progress.take({"type": "approval_resolved", "approval_id": "1:0"}, 2.0)
    assert not progress.wants_you
