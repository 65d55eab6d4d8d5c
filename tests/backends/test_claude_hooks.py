"""What hooks of the user's own settings do to a turn of claude, as recorded: refuse the prompt, a tool, or the answer."""

from __future__ import annotations

import pytest

from tests.backends.recorded import Recording


@pytest.mark.parametrize(
    ("name", "why"), [("hook_blocks", "not today"), ("hook_stops", "enough"), ("live_hook_blocks", "not today")]
)
def test_a_prompt_that_a_hook_kept_from_the_model_has_failed_and_its_refusal_is_no_answer(name: str, why: str) -> None:
    ends = [one.terminal for one in Recording.of(f"claude/{name}").decode() if one.terminal]
    error = ends[0].error
    assert error is not None and (error.kind, error.retryable, ends[0].text) == ("permission", False, "")
    assert why in error.message and "Say hello" not in error.message
    assert [(one.error, one.text) for one in ends[1:]] == [(None, "Second.")] * (name == "live_hook_blocks")


def test_a_hook_that_sends_the_model_back_is_no_end() -> None:
    terminal = Recording.of("claude/hook_again").terminal()
    assert (terminal.error, terminal.text) == (None, "Guten Tag.")


@pytest.mark.parametrize(
    ("name", "why"), [("hook_denies", "not this"), ("live_ask_deny", ""), ("tool_denied", "haven't granted it")]
)
def test_a_refused_tool_is_told_once_whoever_refused_it(name: str, why: str) -> None:
    recording = Recording.of(f"claude/{name}")
    (denied,) = recording.events("permission_denied")
    ends = [one.terminal for one in recording.decode() if one.terminal]
    assert ends[0].denied == (denied.name,)
    assert why in denied.reason
