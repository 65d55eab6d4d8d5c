"""Answers, tools and sessions of the real Qwen Code, through the daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab import text_of
from tests.e2e.qwen.lab import QwenLab
from tests.versions import VERSIONS

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}


@pytest.mark.fault(72)
def test_a_text_answer_of_the_worker_behind_the_launcher_streams_and_is_confirmed_whole(
    lab: Callable[..., QwenLab],
) -> None:
    here = lab("text")
    turn = here.turn(system_prompt="Speak like a pirate.")
    events = here.events(turn["session_id"])
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta")
    init = here.events(turn["session_id"], "session_init")[0]
    argv = here.events(turn["session_id"], "process_started")[0]["argv"]
    assert (argv[0].endswith("/bin/node"), argv[1], argv[2].endswith("/cli.js")) == (True, "--expose-gc", True)
    assert turn["outcome"] == "completed"
    assert turn["text"] == "Hello, smile \U0001f600 line\u2028separator.\nBye."
    assert deltas == turn["text"] == text_of(events)
    assert not [e for e in events if e["type"] == "unparsed"]
    assert init["native_session_id"] == turn["session_id"] and init["backend_version"] == VERSIONS["qwen"]
    system = here.api.main_requests[0].body["messages"][0]
    assert system["role"] == "system" and "pirate" not in str(argv)
    assert "Speak like a pirate." in str(system) and "You are Qwen Code" in str(system)


def test_without_a_mode_shell_and_edits_are_denied_and_said_so(lab: Callable[..., QwenLab]) -> None:
    here = lab("tool_denied")
    turn = here.turn("Use your tools.")
    denied = here.events(turn["session_id"], "permission_denied")
    assert turn["outcome"] == "completed"
    assert turn["denied"] == ["write_file", "run_shell_command"] == [event["name"] for event in denied]
    assert "permission" in denied[0]["reason"]
