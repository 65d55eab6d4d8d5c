"""The tokens of a codex turn: each model call counts once, however often codex tells of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clisup.backends.base import Carried
from clisup.model.usage import Usage
from tests.backends.recorded import PATHS, Recording, name_of

CODEX = [path for path in PATHS if path.parents[1].name == "codex"]


def tokens_of_responses(recording: Recording) -> int:
    """What the answers of the API said themselves; codex passes that on for threads that did not begin in another process."""
    frames = [json.loads(line.data) for line in recording.lines()]
    told = [frame["params"]["usage"] for frame in frames if frame.get("method") == "rawResponse/completed"]
    return sum(usage["inputTokens"] + usage["outputTokens"] for usage in told if usage)


@pytest.mark.parametrize("path", CODEX, ids=name_of)
def test_a_turn_has_used_what_its_responses_say(path: Path) -> None:
    recording = Recording(path)
    ends = [one.terminal for one in recording.decode() if one.terminal]
    if (
        ends and not recording.request.resume and not path.stem.startswith("max_tokens")
    ):  # these have a test of their own
        assert (ends[0].usage.total_tokens or 0) == tokens_of_responses(recording)


@pytest.mark.parametrize(("name", "calls"), [("max_tokens", [1040]), ("max_tokens_later", [1040, 1042])])
def test_a_response_that_its_length_cut_has_used_its_tokens(name: str, calls: list[int]) -> None:
    """As the loopback API counted them."""
    recording = Recording.of(f"codex/{name}")
    assert [event.usage.total_tokens for event in recording.events("usage")] == calls
    assert recording.terminal().usage.total_tokens == sum(calls)


def test_a_full_context_tells_no_tokens_and_its_zeros_are_no_usage() -> None:
    recording = Recording.of("codex/overflow")
    assert [event.usage.source for event in recording.events("usage")] == ["unknown"]
    assert recording.terminal().usage == Usage()
    assert Recording.of("codex/overflow_later").terminal().usage.total_tokens == 1040


def test_after_a_full_context_the_next_turn_has_used_its_own_tokens_alone() -> None:
    """codex begins its total anew with it."""
    assert Recording.of("codex/overflow_later_again").terminal().usage.total_tokens == 1044 + 1046


def test_a_limit_that_is_reached_repeats_the_call_before_it_and_that_is_no_second_one() -> None:
    recording = Recording.of("codex/usage_limit_later")
    assert [event.usage.output_tokens for event in recording.events("usage")] == [40]
    assert recording.terminal().usage.total_tokens == 1040


def test_a_resumed_turn_that_asked_nothing_has_not_used_what_the_turn_before_it_did() -> None:
    recording = Recording.of("codex/usage_limit_resumed_again")
    assert recording.events("usage") == []
    assert recording.terminal().usage.total_tokens is None


def test_an_estimate_after_a_compaction_tells_the_context_and_no_tokens() -> None:
    events = Recording.of("codex/compacting").events("usage")
    assert [event.usage.total_tokens for event in events] == [1040, 1042, None, 1044]
    assert events[2].context_tokens > events[1].context_tokens


@pytest.mark.parametrize("kind", ["codex", "codex-exec"])
def test_a_turn_that_compacts_before_it_begins_has_used_its_own_tokens_alone(kind: str) -> None:
    names = ["compacting_resumed", "compacting_resumed_again", "compacting_resumed_third"]
    used = [Recording.of(f"{kind}/{name}").terminal().usage.total_tokens for name in names]
    assert used == [1040 + 1042 + 1044, 1046 + 1048, 1050 + 1052]  # as the loopback API counted them


def test_a_resumed_thread_whose_total_is_not_known_begins_with_what_it_repeats() -> None:
    """So after a daemon or a CLI that died before the total was told."""
    recording = Recording.of("codex/compacting_resumed_again")
    decoder = recording.adapter.decoder(Carried(usage=Usage()), recording.request)
    (terminal,) = [one.terminal for one in map(decoder.decode, recording.lines()) if one.terminal]
    assert terminal.usage.total_tokens == 1046 + 1048
    assert terminal.usage_total is not None and terminal.usage_total.total_tokens == 5220
