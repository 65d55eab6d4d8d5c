"""What goes wrong with the real opencode, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab import marked, poll
from tests.e2e.opencode.lab import OpencodeLab
from tests.e2e.opencode.scenarios import UNKNOWN_SESSION

pytestmark = pytest.mark.e2e
Start = Callable[..., OpencodeLab]


@pytest.mark.parametrize(
    ("scenario", "kind", "status"),
    [
        ("http_401", "authentication", 401),
        ("http_429", "rate_limit", 429),
        ("overflow_final", "context_overflow", None),
    ],
)
def test_a_failed_request_fails_the_turn_with_its_kind(
    lab: Start, scenario: str, kind: str, status: int | None
) -> None:
    turn = lab(scenario).turn()
    assert turn["outcome"] == "failed"
    assert turn["error"]["kind"] == kind and turn["error"].get("http_status") == status


def test_an_overflow_that_opencode_mends_is_no_failure(lab: Start) -> None:
    here = lab("overflow")
    turn = here.turn()
    assert (turn["outcome"], turn["text"]) == ("completed", "After it.")
    assert turn["usage"]["input_tokens"] == 1400, "the summary and the answer"
    assert here.events(turn["session_id"], "process_exited")[0]["exit_code"] == 1


def test_a_session_goes_on_after_a_failed_turn(lab: Start) -> None:
    here = lab("fails_later")
    first = here.turn()
    kinds = [(here.turn(session=first["session_id"]).get("error") or {}).get("kind") for _ in range(2)]
    assert kinds == ["authentication", None]


@pytest.mark.fault(67)
def test_an_unknown_session_is_told(lab: Start) -> None:
    here = lab("text")
    lost = here.turn(session=here.open(resume_native_id=UNKNOWN_SESSION))
    assert (lost["outcome"], lost["error"]["kind"]) == ("failed", "session_not_found")


def test_an_unknown_model_is_told_although_stdout_does_not_say_so(lab: Start) -> None:
    turn = lab("text").turn(model="fake/none")
    assert turn["error"]["kind"] == "model_not_found" and "fake/none" in turn["error"]["message"]


@pytest.mark.fault(15)
def test_a_silent_wait_for_a_rate_limit_ends_as_one(lab: Start) -> None:
    """opencode tells its log alone of a request that it will repeat, and nothing else before the first answer."""
    here = lab("waits_for_a_limit")
    session = here.open(timeouts={"startup": 100.0, "term_grace": 2.0})
    turn = here.turn(session=session)
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "rate_limit")
    assert "Rate limit reached" in turn["error"]["message"]


@pytest.mark.fault(10)
@pytest.mark.fault(72)
def test_an_interrupt_ends_opencode_and_every_process_of_its_tool(lab: Start) -> None:
    """opencode has no handlers for signals, and would leave its tools behind."""
    here = lab("slow_tool")
    session = here.open()
    here.prompt(session, "Use your tools.")
    poll(lambda: "sleep" in marked(session), "the tool's child")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert not marked(session)


@pytest.mark.fault(1)
def test_a_daemon_killed_in_mid_turn_loses_nothing(lab: Start) -> None:
    here = lab("slow_tool")
    session = here.open()
    here.prompt(session, "Use your tools.")
    poll(lambda: "sleep" in marked(session), "the tool's child")
    here.kill()
    here.start()
    done = here.wait_for(session, "turn_completed")
    events = here.events(session)
    assert (done["outcome"], done["text"]) == ("completed", "done")
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert len([e for e in events if e["type"] == "tool_result"]) == 1
