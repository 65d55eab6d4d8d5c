"""What goes wrong with the real gemini, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.lab import marked, poll

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}
ONE_TRY = {"general": {"maxAttempts": 1}}
Start = Callable[..., GeminiLab]


@pytest.mark.parametrize(
    ("scenario", "kind", "status"),
    [("http_429", "rate_limit", None), ("http_500", "server", 500), ("http_503_plain", "overloaded", 503)],
)
def test_a_failed_request_fails_the_turn_with_its_kind(
    lab: Start, scenario: str, kind: str, status: int | None
) -> None:
    turn = lab(scenario, settings=ONE_TRY).turn()
    assert turn["outcome"] == "failed"
    assert turn["error"]["kind"] == kind and turn["error"].get("http_status") == status


@pytest.mark.fault(68)
def test_a_session_whose_first_turn_failed_goes_on_under_another_id(lab: Start) -> None:
    """gemini keeps the file of a session without an answer: it neither resumes that nor gives the id to a new one."""
    here = lab("http_401_once")
    first = here.turn()
    assert first["error"]["kind"] == "authentication" and first["error"]["http_status"] == 401
    second = here.turn(session=first["session_id"])
    third = here.turn(session=first["session_id"])
    assert [turn["outcome"] for turn in (second, third)] == ["completed", "completed"]
    ids = [e["native_session_id"] for e in here.events(first["session_id"], "session_init")]
    assert ids[0] != ids[1] == ids[2]
    assert "Now you may." in str(here.api.main_requests[-1].body["contents"])


@pytest.mark.fault(63)
def test_an_empty_answer_is_a_failure_although_the_cli_exits_0(lab: Start) -> None:
    here = lab("empty", settings=ONE_TRY)
    turn = here.turn()
    assert turn["outcome"] == "failed" and turn["error"]["kind"] == "server"
    assert here.events(turn["session_id"], "process_exited")[0]["exit_code"] == 0


@pytest.mark.fault(67)
def test_an_unknown_session_is_told(lab: Start) -> None:
    here = lab("text")
    session = here.open(resume_native_id="00000000-0000-4000-8000-000000000000")
    lost = here.turn(session=session)
    assert lost["outcome"] == "failed" and lost["error"]["kind"] == "session_not_found"
    assert here.turn(session=session)["outcome"] == "completed"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--no-such-flag"], "Unknown arguments: such-flag"),
        (["--resume=latest"], "mutually exclusive"),
        (["--approval-mode=boldly"], "Invalid values:"),
    ],
)
def test_what_the_cli_refuses_at_its_start_is_told_without_the_help_behind_it(
    lab: Start, args: list[str], words: str
) -> None:
    error = lab("text", config=f"args = {args}").turn()["error"]
    assert error["kind"] == "invalid_request" and words in error["message"]
    assert "--help" not in error["message"] and "the backend's args" in error["message"]


@pytest.mark.fault(15)
@pytest.mark.fault(73)
def test_a_stalled_stream_is_ended_by_the_watchdog_and_the_session_goes_on(lab: Start) -> None:
    here = lab("stall")
    turn = here.turn(timeouts={"model_idle": 2.0, "term_grace": 2.0})
    exited = here.events(turn["session_id"], "process_exited")[0]
    assert turn["outcome"] == "timed_out" and turn["error"]["kind"] == "idle_timeout"
    assert exited["ended_by"] == "watchdog:model"


@pytest.mark.fault(15)
@pytest.mark.parametrize(
    ("scenario", "kind"), [("waits_for_a_limit", "rate_limit"), ("stalls_after_a_limit", "idle_timeout")]
)
def test_a_silent_wait_for_a_rate_limit_ends_as_one_and_a_stalled_stream_does_not(
    lab: Start, scenario: str, kind: str
) -> None:
    """gemini tells stderr alone of a request that it will repeat."""
    turn = lab(scenario).turn(timeouts={"model_idle": 12.0, "term_grace": 2.0})
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", kind)
    assert ("Resource has been exhausted" in turn["error"]["message"]) is (kind == "rate_limit")


@pytest.mark.fault(10)
@pytest.mark.fault(72)
def test_an_interrupt_ends_gemini_and_every_process_of_its_tool(lab: Start) -> None:
    """The tool has a session of its own: gemini leaves it behind, whatever signal ends it."""
    here = lab("sleeper")
    session = here.open(**YOLO)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    poll(lambda: marked(session).count("sleep") == 3, "the tool's three children")
    assert marked(session).count("node") + marked(session).count("MainThread") <= 1, "no launcher and worker"
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert not marked(session)


def test_a_background_command_does_not_outlive_its_turn(lab: Start) -> None:
    here = lab("background")
    turn = here.turn("Use your tools.", **YOLO)
    assert turn["outcome"] == "completed" and turn["text"] == "It runs."
    assert not marked(turn["session_id"])


@pytest.mark.fault(1)
def test_a_daemon_killed_in_mid_turn_loses_nothing(lab: Start) -> None:
    here = lab("slow_tool")
    session = here.open(**YOLO)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    here.kill()
    here.start()
    done = here.wait_for(session, "turn_completed")
    events = here.events(session)
    assert done["outcome"] == "completed" and done["text"] == "done"
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert len([e for e in events if e["type"] == "tool_result"]) == 1
