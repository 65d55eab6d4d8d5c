"""A terminal's claude on the transcript of a live session: the next process knows its words, and those of the session's own turns."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.lab import ClaudeLab, tokens_of
from tests.e2e.scenarios import Scenario, prompts, remember
from tests.e2e.test_seeding import vanilla

LIVE = 'mode = "live"\n'
BRIEF = "[backends.claude.live]\nidle_s = 3"
pytestmark = pytest.mark.e2e


def told_of_strangers(here: ClaudeLab, session: str) -> list[str]:
    return [event["message"] for event in here.events(session, "notice") if event["code"] == "foreign_writes"]


@pytest.mark.parametrize("end", ["by the next prompt", "by SIGKILL", "by its idle end"])
def test_after_a_terminal_wrote_a_live_session_goes_on_with_all_words_and_says_so(
    lab: Callable[..., ClaudeLab], end: str
) -> None:
    here = lab(Scenario("memory", remember), config=LIVE + (BRIEF if end == "by its idle end" else ""))
    here.asked_by_others = True
    session = here.open()
    here.turn("Live one.", session=session)
    [first] = here.pids(session)
    before = here.api.served.so_far()
    assert "You first said: Live one." in vanilla(here, session, "Terminal two.")
    by_terminal = here.api.served.since(before)
    if end == "by SIGKILL":
        os.kill(first, signal.SIGKILL)
    if end != "by the next prompt":
        here.wait_for(session, "process_exited")
    here.turn("Live three.", session=session)
    words = ["Live one.", "Terminal two.", "Live three."]
    assert prompts(here.api.main_requests[-1].body) == words
    [told] = told_of_strangers(here, session)
    assert "2 messages" in told
    # The new process is an ordinary one: it takes further prompts, and what it told is not lost with it.
    here.turn("Live four.", session=session)
    pids = here.pids(session)
    assert len(pids) == 2 and pids[0] == first
    if end == "by SIGKILL":
        os.kill(pids[-1], signal.SIGKILL)
        here.turn("Live five.", session=session)
        assert prompts(here.api.main_requests[-1].body) == [*words, "Live four.", "Live five."]
    assert len(told_of_strangers(here, session)) == 1
    served = here.api.served.so_far()
    own = tuple(served[name] - by_terminal[name] for name in ("input_tokens", "output_tokens"))
    assert tokens_of(*here.events(session, "turn_completed")) == own
