"""Forks of codex threads that were compacted: the running total of the source is no part of what a fork tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.codex.fake_api import prompts
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import Scenario, say
from tests.e2e.codex.test_codex_sessions import fork
from tests.e2e.lab import tokens_of

pytestmark = pytest.mark.e2e
Lab = Callable[..., CodexLab]
MODES = pytest.mark.parametrize("mode", ["one-shot", "live"])
TEXT = Scenario("text", say("Said."))
ENOUGH_FOR_THREE = {"tokens": 3500}  # of the source and of each fork: an answer has 1,040 and a few
COMPACTS_ITSELF = ("-c", "model_auto_compact_token_limit=1010")


def tells_its_own(here: CodexLab, session: str, prompt: str, requests: int) -> None:
    """Assert that a turn makes so many requests, and tells their tokens alone."""
    served, asked = here.api.served.so_far(), len(here.api.main_requests)
    turn = here.turn(prompt, session=session)
    assert len(here.api.main_requests) == asked + requests
    assert turn["usage"]["source"] == "reported"
    assert tokens_of(turn) == here.api.served.tokens(served)


@MODES
def test_a_fork_after_a_compaction_tells_its_own_tokens_from_its_first_turn_on(lab: Lab, mode: str) -> None:
    here = lab(TEXT)
    source = here.turn("First.", mode=mode, budget=ENOUGH_FOR_THREE)["session_id"]
    with here.client() as client:
        assert client.call("session/compact", session_id=source, wait=True)["outcome"] == "completed"
    before, whole = fork(here, source, at_turn="t1"), fork(here, source)
    tells_its_own(here, whole, "In the fork.", 1)
    assert prompts(here.api.main_requests[-1].body)[-1] == "In the fork."
    tells_its_own(here, whole, "And again.", 1)
    tells_its_own(here, fork(here, whole), "In the fork's fork.", 1)
    tells_its_own(here, before, "Before the compaction.", 1)
    tells_its_own(here, source, "In the source.", 1)


@MODES
def test_a_fork_of_a_thread_that_compacted_itself_tells_its_own_tokens_and_those_of_its_compaction(
    lab: Lab, mode: str
) -> None:
    here = lab(TEXT, args=COMPACTS_ITSELF)
    source = here.turn("First.", mode=mode)["session_id"]
    here.turn("Second.", session=source)
    assert here.wait_for(source, "status", status="compacted")["turn_id"] == "t2"
    forked = fork(here, source)
    tells_its_own(here, forked, "In the fork.", 2)
    tells_its_own(here, forked, "And again.", 2)
    tells_its_own(here, source, "In the source.", 2)
