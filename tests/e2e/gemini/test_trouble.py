"""What goes wrong with the real gemini, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.lab import marked

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}
ONE_TRY = {"general": {"maxAttempts": 1}}
Start = Callable[..., GeminiLab]


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


def test_a_background_command_does_not_outlive_its_turn(lab: Start) -> None:
    here = lab("background")
    turn = here.turn("Use your tools.", **YOLO)
    assert turn["outcome"] == "completed" and turn["text"] == "It runs."
    assert not marked(turn["session_id"])
