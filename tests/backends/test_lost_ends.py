"""A CLI that says that it is idle and tells no end of the turn: the turn ends soon, and not at a limit of silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.base import Carried, Decoder, LaunchRequest
from clisup.backends.registry import get_adapter
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE
from clisup.ops.drift import FrameSample
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
def test_a_turn_whose_end_got_lost_ends_soon(name: str) -> None:
    decoder, phases = heard(name, lost=True)
    assert phases[-1] == "tail" and phases[-2] == "model"
    settled = decoder.settle()
    assert settled is not None and settled.terminal is not None
    error = settled.terminal.error
    if name.startswith("codex"):  # the answer is whole, and nothing else is missing
        assert error is None and settled.terminal.text
    else:
        assert error is not None and (error.kind, error.retryable) == ("protocol", True) and "idle" in error.message
    assert decoder.settle() is None and not decoder.open_work.ended


@pytest.mark.parametrize("name", ENDS)
def test_a_turn_that_ends_as_it_should_is_not_settled(name: str) -> None:
    decoder, _ = heard(name, lost=False)
    assert decoder.settle() is None and not decoder.open_work.ended


@pytest.mark.parametrize(
    ("kind", "begins", "ends"),
    [
        ("claude", {"type": "system", "subtype": "status", "status": "sandboxing"},
         {"type": "system", "subtype": "status", "status": "requesting"}),
        ("codex", {"method": "thread/status/changed", "params": {"status": {"type": "active", "activeFlags": ["sandboxing"]}}},
         {"method": "thread/status/changed", "params": {"status": {"type": "active", "activeFlags": []}}}),
    ],
)  # fmt: skip
def test_a_state_that_clisup_does_not_know_has_the_limit_of_a_tool_and_counts_as_drift(
    kind: str, begins: dict[str, Any], ends: dict[str, Any]
) -> None:
    adapter = get_adapter(kind)
    request = LaunchRequest(command=("cli",), prompt="p", native_session_id="s", resume=False, cwd="/w")
    decoder, tracker, sample = adapter.decoder(Carried(0.0, NO_USAGE), request), PhaseTracker(), FrameSample(None)
    phases = []
    for frame in (begins, ends):
        data = json.dumps(frame).encode()
        line = Line(0, len(data) + 1, data)
        events = decoder.decode(line).events
        sample.see(line, events)
        for event in events:
            tracker.see(event)
        phases.append((tracker.phase, tracker.at_work))
    assert phases == [("tool", ["sandboxing"]), ("model", [])]
    assert sample.frames == {"state sandboxing": 1}
