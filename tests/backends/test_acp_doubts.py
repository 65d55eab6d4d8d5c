"""What an ACP agent says is compared with what clisup knows: an end without words, words of another session, calls half told."""

from __future__ import annotations

import pytest
from test_acp import Conversation, prompted

from clisup.model.events import BackendStatus
from clisup.policy.watchdog import PhaseTracker


@pytest.mark.fault(85)
@pytest.mark.parametrize("thinks", [False, True])
def test_an_end_without_a_word_has_failed(thinks: bool) -> None:
    talk = prompted()
    if thinks:
        talk.update("agent_thought_chunk", content={"type": "text", "text": "Hm."})
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None and terminal.error is not None
    assert (terminal.error.kind, terminal.error.retryable) == ("server", True)
    assert "without an answer" in terminal.error.message


@pytest.mark.parametrize("kind", ["tool_call", "plan", "compaction_update"])
def test_a_turn_that_did_something_needs_no_words(kind: str) -> None:
    talk = prompted()
    talk.update(kind, toolCallId="t", status="completed", entries=[])
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None and terminal.error is None


@pytest.mark.fault(85)
def test_words_of_another_session_are_no_part_of_the_turn_and_told_once() -> None:
    talk = prompted()
    talk.say("Main: 4.")
    child = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "noise"}}
    told = [
        talk.hear({"method": "session/update", "params": {"sessionId": "child", "update": child}}) for _ in range(2)
    ]
    assert [list(one.events) for one in told] == [[BackendStatus(status="other_session", detail="child")], []]
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None and terminal.text == "Main: 4."


@pytest.mark.fault(85)
def test_a_call_without_its_input_is_open_work_from_its_first_mention() -> None:
    talk, tracker = prompted(), PhaseTracker(started=True)
    assert talk.update("tool_call", toolCallId="t", title="Build", kind="execute") == []
    tracker.follow(*talk.decoder.open_work)
    assert (tracker.phase, tracker.at_work) == ("tool", ["execute"])
    talk.update("tool_call_update", toolCallId="t", status="completed")
    tracker.follow(*talk.decoder.open_work)
    assert tracker.phase == "model"


def test_a_session_that_is_being_opened_is_a_phase_that_names_its_request() -> None:
    talk, tracker = Conversation(), PhaseTracker()
    tracker.follow(*talk.decoder.open_work)
    assert tracker.phase == "startup"
    talk.answer({"protocolVersion": 1})
    tracker.follow(*talk.decoder.open_work)
    assert (tracker.phase, tracker.at_work) == ("opening", ["session/new"])
    talk.answer({"sessionId": "s"})
    tracker.follow(*talk.decoder.open_work)
    assert tracker.awaits == ""
