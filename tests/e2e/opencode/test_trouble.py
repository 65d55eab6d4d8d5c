"""What goes wrong with the real opencode, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.opencode.lab import OpencodeLab

pytestmark = pytest.mark.e2e
Start = Callable[..., OpencodeLab]


def test_an_overflow_that_opencode_mends_is_no_failure(lab: Start) -> None:
    here = lab("overflow")
    turn = here.turn()
    assert (turn["outcome"], turn["text"]) == ("completed", "After it.")
    assert turn["usage"]["input_tokens"] == 1400, "the summary and the answer"
    assert here.events(turn["session_id"], "process_exited")[0]["exit_code"] == 1


def test_an_unknown_model_is_told_although_stdout_does_not_say_so(lab: Start) -> None:
    turn = lab("text").turn(model="fake/none")
    assert turn["error"]["kind"] == "model_not_found" and "fake/none" in turn["error"]["message"]
