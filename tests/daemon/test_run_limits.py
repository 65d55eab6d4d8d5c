"""What in a run's events ends it: here a CLI that works in another conversation than the session's."""

from __future__ import annotations

import json

from clisup.config.model import LimitsConfig
from clisup.daemon.runs.run_limits import RunLimits
from clisup.model.events import SessionInit
from tests.backends.recorded import Recording


def test_a_cli_that_begins_another_conversation_says_that_nothing_was_cleared() -> None:
    recording = Recording.of("claude/slash_clear")
    asked_for = json.loads(recording.lines()[0].data)["session_id"]
    judge = RunLimits(LimitsConfig(), asked_for)
    (fault,) = [fault for one in recording.decode() for event in one.events if (fault := judge.fault(event))]
    assert (fault.reason, fault.error.kind) == ("wrong_session", "invalid_request")
    assert "nothing was cleared" in fault.error.message


def test_a_cli_that_answers_from_another_session_without_a_word_does_not_know_the_one_asked_for() -> None:
    fault = RunLimits(LimitsConfig(), "mine").fault(SessionInit(native_session_id="another"))
    assert fault is not None and (fault.reason, fault.error.kind) == ("wrong_session", "session_not_found")
