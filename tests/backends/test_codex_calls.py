"""The calls of codex that an interrupt cuts off: their items never end, and raw outputs tell what became of them."""

from __future__ import annotations

import json

import pytest

from tests.backends.recorded import Recording


@pytest.mark.parametrize(("name", "count"), [("tool_interrupt", 1), ("tools_interrupt", 2), ("code_interrupt", 1)])
def test_a_call_that_was_cut_off_has_failed_and_says_so(name: str, count: int) -> None:
    results = Recording.of(f"codex/{name}").events("tool_result")
    assert [(event.is_error, "aborted by user" in event.content) for event in results] == [(True, True)] * count


def test_a_command_that_runs_on_is_not_answered_by_what_it_has_said_so_far() -> None:
    recording = Recording.of("codex/tool_running_at_end")
    assert len(recording.events("tool_use")) == 1
    assert not recording.events("tool_result")


def test_a_call_that_codex_did_not_run_has_failed() -> None:
    recording = Recording.of("codex/tools_not_run")
    asked = {event.tool_use_id for event in recording.events("tool_use")}
    answered = {event.tool_use_id: event.is_error for event in recording.events("tool_result")}
    assert len(asked) == 7 and answered == dict.fromkeys(asked, True)


def test_what_a_command_writes_is_no_word_of_codex() -> None:
    recording = Recording.of("codex/tool_typed")
    results = recording.events("tool_result")
    assert ["rejected by user" in event.content for event in results] == [True, True]
    assert not any(event.is_error for event in results)
    assert (recording.events("permission_denied"), recording.terminal().denied) == ([], ())


@pytest.mark.parametrize("kind", ["codex", "codex-exec"])
def test_structured_content_is_the_result_as_the_model_sees_it(kind: str) -> None:
    """Also where text stands beside it: codex shows the model the JSON alone."""
    results = Recording.of(f"{kind}/mcp_structured").events("tool_result")
    assert [event.content for event in results] == ['{"counts":[1,2],"unit":"\u00e9"}'] * 2
    if kind == "codex":
        lines = [line.data.decode() for line in Recording.of("codex/mcp_structured").lines()]
        frames = [json.loads(line)["params"]["item"] for line in lines if '"function_call_output"' in line]
        assert [frame["output"].partition("Output:\n")[2] for frame in frames] == [event.content for event in results]
