"""What goes wrong with the real Qwen Code, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab import marked, poll
from tests.e2e.qwen.lab import QwenLab

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}


@pytest.mark.fault(63)
def test_a_401_fails_at_once_and_its_text_is_no_answer(lab: Callable[..., QwenLab]) -> None:
    here = lab("http_401")
    turn = here.turn()
    assert turn["outcome"] == "failed" and turn["text"] == ""
    assert turn["error"]["kind"] == "authentication" and turn["error"]["http_status"] == 401
    assert turn["error"]["message"] == "401 Incorrect API key provided: fake."
    assert [event["synthetic"] for event in here.events(turn["session_id"], "message")] == [True]
    assert not here.events(turn["session_id"], "content_delta")


@pytest.mark.fault(64)
@pytest.mark.parametrize(("scenario", "kind"), [("http_429", "rate_limit"), ("http_503", "overloaded")])
def test_retries_are_capped_at_seven_requests(lab: Callable[..., QwenLab], scenario: str, kind: str) -> None:
    """By itself the CLI makes 28, and after a 429 it waits 1, 2, 4 .. minutes for ten times more."""
    here = lab(scenario)
    turn = here.turn()
    assert turn["outcome"] == "failed" and turn["error"]["kind"] == kind
    assert len(here.api.requests) == 7


def test_a_500_that_passes_is_no_failure(lab: Callable[..., QwenLab]) -> None:
    turn = lab("http_500_once").turn()
    assert turn["outcome"] == "completed" and turn["text"] == "Recovered."


@pytest.mark.fault(67)
def test_an_unknown_session_is_told_and_the_session_can_start_anew(lab: Callable[..., QwenLab]) -> None:
    here = lab("text")
    session = here.open(resume_native_id="00000000-0000-4000-8000-000000000000")
    lost = here.turn(session=session)
    assert lost["outcome"] == "failed" and lost["error"]["kind"] == "session_not_found"
    assert here.turn(session=session)["outcome"] == "completed"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--no-such-flag"], "Unknown arguments: such-flag"),
        (["--session-id=no-uuid"], "Must be a valid UUID"),
        (["--resume=no-uuid"], "Cannot use --session-id with"),
        (["--approval-mode=boldly"], "Invalid values:"),
    ],
)
def test_what_the_cli_refuses_at_its_start_is_told_without_the_help_behind_it(
    lab: Callable[..., QwenLab], args: list[str], words: str
) -> None:
    error = lab("text", config=f"args = {args}").turn()["error"]
    assert error["kind"] == "invalid_request" and words in error["message"]
    assert "--help" not in error["message"] and "the backend's args" in error["message"]


@pytest.mark.fault(15)
@pytest.mark.parametrize("scenario", ["stall", "stall_mid_stream"])
def test_a_stalled_stream_is_ended_by_the_watchdog(lab: Callable[..., QwenLab], scenario: str) -> None:
    here = lab(scenario)
    turn = here.turn(timeouts={"model_idle": 2.0, "term_grace": 2.0})
    assert turn["outcome"] == "timed_out" and turn["error"]["kind"] == "idle_timeout"
    assert here.events(turn["session_id"], "process_exited")[0]["ended_by"] == "watchdog:model"


@pytest.mark.fault(15)
def test_a_silent_wait_for_a_rate_limit_ends_as_one(lab: Callable[..., QwenLab]) -> None:
    """The CLI prints no word of it: only its transcript tells."""
    turn = lab("waits_for_a_limit").turn(timeouts={"model_idle": 6.0, "term_grace": 2.0})
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "rate_limit") and turn["error"]["retryable"]
    assert turn["error"]["http_status"] == 429 and "429 Rate limit reached." in turn["error"]["message"]


@pytest.mark.fault(15)
def test_a_limit_that_has_passed_is_not_the_reason_of_a_stalled_stream(lab: Callable[..., QwenLab]) -> None:
    here = lab("stalls_after_a_limit")
    turn = here.turn(timeouts={"model_idle": 6.0, "term_grace": 2.0})
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert len(here.api.requests) == 2


@pytest.mark.fault(72)
def test_an_interrupt_in_a_tool_leaves_no_process(lab: Callable[..., QwenLab]) -> None:
    here = lab("slow_tool")
    session = here.open(**YOLO)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    poll(lambda: "bash" in marked(session) or "sleep" in marked(session), "the tool's start")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert not marked(session)


@pytest.mark.fault(1)
def test_a_daemon_killed_in_mid_turn_loses_nothing(lab: Callable[..., QwenLab]) -> None:
    here = lab("parallel_tools")
    session = here.open(**YOLO)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    here.kill()
    here.start()
    done = here.wait_for(session, "turn_completed")
    events = here.events(session)
    assert done["outcome"] == "completed" and done["text"] == "Done."
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
