"""Ends of codex turns that codex repeats, leaves out, or reports without any work. Frames come from recordings of codex."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from clisup.backends.base import Carried, LaunchRequest, Terminal
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.codex.decoder import CodexDecoder
from clisup.backends.codex.exec import CodexExecAdapter
from clisup.model.lines.framing import Line
from tests.backends.recorded import Recording

adapter = CodexAdapter()


def method_of(line: Line) -> str:
    return str(json.loads(line.data).get("method"))


def decoded(recording: Recording, *left_out: str) -> CodexDecoder:
    """Decode a recording without its notifications of these names."""
    decoder = adapter.decoder(recording.carried, recording.request)
    for line in recording.lines():
        if method_of(line) not in left_out:
            decoder.decode(line)
    return decoder


def later(decoder: CodexDecoder) -> CodexDecoder:
    """Return the decoder of the next turn of the same live process."""
    request = LaunchRequest(("codex",), "More.", decoder.state.thread, resume=True, cwd="/w", live=True, later=True)
    return adapter.decoder(Carried(kept=decoder.kept), replace(request, prompt_id="p2"))


@pytest.mark.fault(101)
def last(recording: Recording, method: str) -> Line:
    return [line for line in recording.lines() if method_of(line) == method][-1]


def test_a_repeated_end_of_an_earlier_turn_ends_no_later_turn() -> None:
    recording = Recording.of("codex/text")
    following = later(decoded(recording))
    again = following.decode(last(recording, "turn/completed"))
    assert (again.terminal, again.events, following.state.ended) == (None, [], False)


def test_a_command_that_outlives_its_turn_is_called_once_and_gets_its_result() -> None:
    recording = Recording.of("codex/tool_fail")
    result = next(line for line in recording.lines() if b'"exitCode":3' in line.data)
    first = adapter.decoder(recording.carried, recording.request)
    for line in recording.lines():
        if line != result and method_of(line) != "rawResponseItem/completed":
            first.decode(line)
    following = later(first)
    assert [event.type for event in following.decode(result).events] == ["tool_result"]
    assert not following.decode(result).events and not following.kept.calls


def test_words_of_an_earlier_turn_are_no_answer_of_a_later_one() -> None:
    recording = Recording.of("codex/text")
    following = later(decoded(recording))
    (told,) = following.decode(last(recording, "item/completed")).events
    assert (told.type, told.status, following.state.messages.last_text) == ("status", "late_update", "")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["text", "tool_ok", "http_400"])
def test_a_thread_at_rest_ends_the_turn_whose_end_codex_does_not_report(name: str) -> None:
    recording = Recording.of(f"codex/{name}")
    decoder = decoded(recording, "turn/completed")
    assert decoder.open_work.ended
    settled, told = decoder.settle(), recording.terminal()
    assert settled is not None and settled.terminal is not None
    assert (settled.terminal.text, settled.terminal.error) == (told.text, told.error)
    assert not decoder.open_work.ended and decoder.settle() is None


def test_a_thread_that_rests_before_its_turn_has_ended_nothing() -> None:
    recording = Recording.of("codex/resume_again")
    decoder = adapter.decoder(recording.carried, recording.request)
    for line in recording.lines():
        if method_of(line) == "turn/started":
            break
        decoder.decode(line)
        assert not decoder.open_work.ended


def end_of(adapter: CodexAdapter | CodexExecAdapter, *frames: dict[str, Any]) -> Terminal | None:
    request = LaunchRequest(("codex",), "Hi.", None, resume=False, cwd="/w")
    decoder = adapter.decoder(Carried(), request)
    lines = [json.dumps(frame).encode() for frame in frames]
    return [decoder.decode(Line(0, len(data), data)).terminal for data in lines][-1]


def test_a_turn_for_which_the_model_was_not_asked_is_no_success() -> None:
    opened = {"id": 2, "result": {"thread": {"id": "t"}, "sandbox": {"type": "readOnly"}}}
    served = end_of(
        adapter, opened, {"method": "turn/completed", "params": {"threadId": "t", "turn": {"status": "completed"}}}
    )
    none = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    once = end_of(CodexExecAdapter(), {"type": "turn.started"}, {"type": "turn.completed", "usage": none})
    for terminal in (served, once):
        assert terminal is not None and terminal.error is not None and terminal.error.retryable
        assert terminal.error.kind == "server" and "without an answer" in terminal.error.message


def test_a_refusal_without_words_stays_the_models_answer() -> None:
    assert Recording.of("codex-exec/refusal").terminal().error is None
