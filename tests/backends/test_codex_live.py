"""A live codex: later turns, steered prompts, another model and compactions. Frames come from recordings of codex 0.169.0."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.codex.adapter import CodexAdapter
from clisup.errors import UsageError
from tests.backends.recorded import Recording
from tests.e2e.codex.record import STEERED
from tests.e2e.codex.scenarios import LIVE_RUN

ID = "01a20048-7d52-7370-ae77-e76ec03cf52b"
OWN = LIVE_RUN["prompt_id"]
adapter = CodexAdapter()


def later(**more: Any) -> LaunchRequest:
    request = LaunchRequest(
        ("codex",), "And $this.", ID, resume=True, cwd="/w", live=True, later=True, prompt_id=STEERED
    )
    return replace(request, **more)


def stdin(request: LaunchRequest) -> dict[str, Any]:
    return dict(json.loads(adapter.launch(request).stdin))


def test_a_later_turn_names_the_model() -> None:
    assert stdin(later(model="gpt-5.1"))["params"]["model"] == "gpt-5.1"
    assert "model" not in stdin(later())["params"]


def test_a_compaction_is_a_request_without_words() -> None:
    command = adapter.compact_prompt(None)
    told = stdin(later(prompt=command, command_prompt=True))
    assert (told["method"], told["params"]) == ("thread/compact/start", {"threadId": ID})
    with pytest.raises(UsageError) as refused:
        adapter.compact_prompt("keep the numbers")
    assert refused.value.kind == "unsupported"


@pytest.mark.parametrize("name", ["steer_tool", "steer_compaction"])
def test_a_prompt_is_sent_into_the_turn_that_codex_has_begun(name: str) -> None:
    recording = Recording.of(f"codex/{name}")
    decoder = adapter.decoder(recording.carried, recording.request)
    texts = []
    for line in recording.lines():
        decoder.decode(line)
        texts.append(decoder.steer("", later()))
    begun = next(number for number, line in enumerate(recording.lines()) if b'"inProgress"' in line.data)
    assert texts[:begun] == [None] * begun and len(set(texts[begun:])) == 1
    told = json.loads(texts[-1] or "")
    assert told["method"] == "turn/steer" and told["params"]["clientUserMessageId"] == STEERED
    assert told["params"]["expectedTurnId"] in recording.lines()[-1].data.decode()
    assert told["params"]["input"][0]["text"] == "And $\u200bthis."  # a live process cannot switch a skill off


@pytest.mark.parametrize(
    ("name", "taken"),
    [("steer_tool", True), ("steer_text", True), ("steer_late", False), ("steer_compaction", False)],
)
def test_the_end_of_a_turn_names_the_prompts_that_it_took(name: str, taken: bool) -> None:
    terminal = Recording.of(f"codex/{name}").terminal()
    assert terminal.error is None and terminal.prompts == ((OWN, STEERED) if taken else (OWN,))


def test_a_process_for_one_turn_names_no_prompts() -> None:
    assert Recording.of("codex/text").terminal().prompts is None


def test_a_refused_prompt_is_silence_for_the_next_turn_and_at_rest() -> None:
    """The answer may come after the end of its turn, to another decoder."""
    refusal = Recording.of("codex/steer_late").lines()[-1]
    assert b"no active turn to steer" in refusal.data
    for request in (later(), replace(later(), later=False)):
        decoded = adapter.decoder(Carried(), request).decode(refusal)
        assert (decoded.events, decoded.terminal, decoded.replies) == ((), None, ())


def test_the_message_that_a_steered_prompt_cut_is_retracted() -> None:
    recording = Recording.of("codex/steer_text")
    (retracted,) = recording.events("retracted")
    first, second = recording.events("message_start")
    assert (retracted.message_id, recording.terminal().text) == (first.message_id, "The answer.")
    assert [event.message_id for event in recording.events("message")] == [second.message_id]


def test_another_model_is_told_in_the_turn_that_has_it() -> None:
    (init,) = Recording.of("codex/model_changed").events("session_init")
    assert (init.model, init.permission_mode) == ("gpt-5.1", "workspace-write")
    assert {event.model for event in Recording.of("codex/model_changed").events("message_start")} == {"gpt-5.1"}


def test_a_compaction_has_its_tokens_and_no_text() -> None:
    recording = Recording.of("codex/compact_again")
    assert [event.status for event in recording.events("status")].count("compacted") == 1
    terminal = recording.terminal()
    assert (terminal.text, terminal.usage.output_tokens) == ("", 41)


@pytest.mark.parametrize("kind", ["codex", "codex-exec"])
def test_a_plan_is_told_as_a_status(kind: str) -> None:
    told = [event.detail for event in Recording.of(f"{kind}/plan").events("status") if event.status == "todo_list"]
    assert told and all("look\n" in words and words.endswith("think") for words in told)
