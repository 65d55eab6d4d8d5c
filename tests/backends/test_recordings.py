"""Every recording of a real CLI keeps the contract, and decodes to the events that are written down for it, whichever CLI it is.

`expected/<kind>/<name>.txt` is the story of a recording. After a new recording or a wanted change, run these tests with
CLISUP_UPDATE_EXPECTED=1 and review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clisup.backends.contract import faults, spoilt_faults, story
from clisup.model.lines.framing import LineFramer
from tests.backends.recorded import PATHS, Recording, name_of
from tests.journals import encode_event

EXPECTED = Path(__file__).parent / "expected"
UPDATE = "CLISUP_UPDATE_EXPECTED" in os.environ


@pytest.fixture(scope="module", params=PATHS, ids=name_of)
def recording(request: pytest.FixtureRequest) -> Recording:
    return Recording(request.param)


def test_a_recording_gives_the_events_that_are_written_down(recording: Recording) -> None:
    expected = EXPECTED / f"{name_of(recording.path)}.txt"
    told = story(recording.file, recording.adapter)
    if UPDATE:
        expected.parent.mkdir(parents=True, exist_ok=True)
        expected.write_text(told)
    assert expected.exists(), "a new recording: run with CLISUP_UPDATE_EXPECTED=1 and review what it writes"
    assert told == expected.read_text()


def test_a_recording_keeps_the_contract(recording: Recording) -> None:
    assert faults(recording.file, recording.adapter) == []
    for event in recording.events():
        encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")


@pytest.mark.fault(25)
def test_a_spoilt_recording_breaks_no_decoder(recording: Recording) -> None:
    assert spoilt_faults(recording.file, recording.adapter) == []


@pytest.mark.fault(100)
@pytest.mark.parametrize("name", ["claude/text", "codex/tools", "gemini/tool_ok", "qwen/tool_ok", "opencode/tool_ok"])
def test_line_ends_of_windows_change_no_event(name: str) -> None:
    recording = Recording.of(name)
    decoders = [recording.adapter.decoder(recording.carried, recording.request) for _ in range(2)]
    plain, windows = (LineFramer().feed(recording.file.data.replace(b"\n", end)) for end in (b"\n", b"\r\n"))
    for one, other in zip(plain, windows, strict=True):
        told, heard = decoders[0].decode(one), decoders[1].decode(other)
        assert [event.type for event in told.events] == [event.type for event in heard.events]
        assert told.terminal == heard.terminal
