"""A CLI that says that it is idle and tells no end of the turn: the turn ends soon, as failed, and not at a limit of silence."""

from __future__ import annotations

import pytest

from clisup.backends.base import Decoder
from clisup.policy.watchdog import PhaseTracker
from tests.backends.recorded import Recording

ENDS = {
    "claude/live_text": b'"type":"result"',
    "codex/text": b'"method":"turn/completed"',
    "codex/tools": b'"method":"turn/completed"',
}


def heard(name: str, *, lost: bool) -> tuple[Decoder, list[str]]:
    """Return a decoder that has heard a recording, without the frame that ends its turn, and the phases on the way."""
    recording = Recording.of(name)
    decoder, tracker = recording.adapter.decoder(recording.carried, recording.request), PhaseTracker()
    phases = []
    for line in recording.lines():
        if lost and ENDS[name] in line.data:
            continue
        decoded = decoder.decode(line)
        for event in decoded.events:
            tracker.see(event)
        tracker.follow(*decoder.open_work)
        phases.append(tracker.phase)
        if decoded.terminal is not None or (lost and decoder.open_work.ended):
            break
    return decoder, phases


@pytest.mark.fault(98)
@pytest.mark.parametrize("name", ENDS)
def test_a_turn_whose_end_got_lost_ends_as_failed(name: str) -> None:
    decoder, phases = heard(name, lost=True)
    assert phases[-1] == "tail" and phases[-2] == "model"
    settled = decoder.settle()
    assert settled is not None and settled.terminal is not None and settled.terminal.error is not None
    assert (settled.terminal.error.kind, settled.terminal.error.retryable) == ("protocol", True)
    assert "idle" in settled.terminal.error.message
    assert decoder.settle() is None and not decoder.open_work.ended


@pytest.mark.parametrize("name", ENDS)
def test_a_turn_that_ends_as_it_should_is_not_settled(name: str) -> None:
    decoder, _ = heard(name, lost=False)
    assert decoder.settle() is None and not decoder.open_work.ended
