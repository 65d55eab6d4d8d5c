"""Answers, tools and sessions of the real gemini, through the daemon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.e2e.gemini.fake_api import FAKE_KEY
from tests.e2e.gemini.lab import COMMAND, GeminiLab
from tests.e2e.lab import text_of

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}
Start = Callable[..., GeminiLab]


def test_a_text_answer_streams_and_is_told_whole_and_its_thoughts_are_counted(lab: Start) -> None:
    here = lab("thinking")
    turn = here.turn()
    events = here.events(turn["session_id"])
    deltas = "".join(e["text"] for e in events if e["type"] == "content_delta")
    init = next(e for e in events if e["type"] == "session_init")
    assert turn["outcome"] == "completed"
    assert turn["text"] == deltas == text_of(events) == "Thought."
    assert init["native_session_id"] == "_" + turn["session_id"] and init["model"] == "fake-model"
    assert turn["usage"] == {
        "input_tokens": 700,
        "cache_read_input_tokens": 300,
        "output_tokens": 47,
        "reasoning_tokens": 7,
        "source": "reported",
    }
    assert not [e for e in events if e["type"] == "unparsed"]
    assert len(here.api.requests) == 1  # no router, no title


def test_a_tool_that_was_taken_away_is_told_as_denied(lab: Start) -> None:
    here = lab("tool_denied")
    turn = here.turn("Use your tools.")
    assert turn["outcome"] == "completed"
    assert turn["denied"] == ["run_shell_command"]
    assert [e["name"] for e in here.events(turn["session_id"], "permission_denied")] == ["run_shell_command"]


@pytest.mark.fault(71)
def test_a_tool_output_of_3_mb_arrives_whole(lab: Start) -> None:
    """Through a pipe gemini loses most of it, and its result with it."""
    here = lab("big_tool")
    turn = here.turn("Use your tools.", **YOLO)
    result = here.events(turn["session_id"], "tool_result")[0]
    assert turn["outcome"] == "completed" and turn["text"] == "That was much."
    with here.client() as client:
        assert len(client.blob(turn["session_id"], result["blob"])) == 3_000_000


@pytest.mark.fault(75)
def test_a_resumed_session_remembers_survives_a_new_one_and_starts_at_once(lab: Start) -> None:
    """gemini's own clean-up deletes a resumed session, and its next start waits for a lock that the last one left."""
    here = lab("memory")
    first = here.turn("My name is Ada.")
    session = first["session_id"]
    here.lock.mkdir(exist_ok=True)  # what an ended gemini leaves: with it the next one waits until it is 10 s old
    born = here.lock.stat().st_ino
    second = here.turn("What did I say?", session=session)
    assert not here.lock.exists() or here.lock.stat().st_ino != born
    assert "removed" in here.log() and str(here.lock) in here.log()
    assert "My name is Ada." in second["text"] and second["usage"]["input_tokens"] == 701
    _as_of_another_minute(here, session)
    here.turn("Somebody else.")
    third = here.turn("And now?", session=session)
    assert third["outcome"] == "completed" and "My name is Ada." in third["text"]


def _as_of_another_minute(here: GeminiLab, session: str) -> None:
    """A resume in a later minute leaves a second file, with a head and no message: the seed of the loss."""
    file, *more = (here.home / ".gemini" / "tmp").glob(f"*/chats/session-*-_{session[:7]}.jsonl")
    if more:
        return  # the minute was over in between
    second = file.with_name(f"session-2026-01-01T00-00-_{session[:7]}.jsonl")
    second.write_bytes(file.read_bytes().split(b"\n")[0] + b"\n")


def test_a_vanilla_gemini_goes_on_from_the_same_history(lab: Start) -> None:
    here = lab("memory")
    here.asked_by_others = True
    session = here.turn("My name is Ada.")["session_id"]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(here.home),
        "GOOGLE_GEMINI_BASE_URL": here.api.url,
        "GEMINI_API_KEY": FAKE_KEY,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    argv = [*COMMAND, "-m", "fake-model", "--resume", f"_{session}", "-p", "What did I say?"]
    done = subprocess.run(argv, env=env, cwd=here.cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert "My name is Ada." in done.stdout, done.stderr


def test_a_system_prompt_takes_the_place_of_geminis_own(lab: Start) -> None:
    here = lab("text")
    here.turn(system_prompt="You are a poet.")
    system = here.api.main_requests[0].body["systemInstruction"]
    assert "You are a poet." in str(system)
