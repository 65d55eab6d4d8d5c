"""Every recording of a real CLI decodes to the events that are written down for it, whichever CLI it is.

`expected/<kind>/<name>.txt` is the story of a recording. After a new recording or a wanted change, run these tests with
CLISUP_UPDATE_EXPECTED=1 and review the difference.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import pytest

from clisup.backends.base import Decoded
from clisup.model.events import ContentDelta, Retracted
from tests.backends.recorded import PATHS, Recording, name_of, story
from tests.journals import encode_event

EXPECTED = Path(__file__).parent / "expected"
UPDATE = "CLISUP_UPDATE_EXPECTED" in os.environ


class Once(Recording):
    """It is decoded once for all tests that look at it, one after the other."""

    @cached_property
    def _decoded(self) -> list[Decoded]:
        return super().decode()

    def decode(self) -> list[Decoded]:
        return self._decoded


@pytest.fixture(scope="module", params=PATHS, ids=name_of)
def recording(request: pytest.FixtureRequest) -> Once:
    return Once(request.param)


def test_a_recording_gives_the_events_that_are_written_down(recording: Once) -> None:
    expected = EXPECTED / f"{name_of(recording.path)}.txt"
    if UPDATE:
        expected.parent.mkdir(parents=True, exist_ok=True)
        expected.write_text(story(recording))
    assert expected.exists(), "a new recording: run with CLISUP_UPDATE_EXPECTED=1 and review what it writes"
    assert story(recording) == expected.read_text()


def test_no_frame_of_a_real_cli_is_unparsed_and_every_event_can_be_written(recording: Once) -> None:
    cut = recording.meta.get("cut", False)  # the CLI itself lost the end of its last line
    for event in recording.events():
        assert event.type != "unparsed" or (cut and event.reason == "truncated"), event
        encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")


def test_a_backend_gives_no_event_that_it_does_not_declare(recording: Once) -> None:
    assert {event.type for event in recording.events()} <= set(recording.adapter.capabilities.events)


def test_deltas_and_messages_tell_the_same_text(recording: Once) -> None:
    """What was shown and neither confirmed nor retracted would be a lie to whoever reads deltas."""
    results = recording.decode()
    if not any(result.terminal for result in results):
        return  # killed in the middle: nothing more could be said
    shown: dict[str | None, str] = {}
    whole: dict[str | None, str] = {}
    for event in (event for result in results for event in result.events):
        if isinstance(event, ContentDelta) and event.kind == "text":
            shown[event.message_id] = shown.get(event.message_id, "") + event.text
        elif event.type == "message":
            text = "".join(block.text or "" for block in getattr(event, "blocks", ()) if block.kind == "text")
            message = getattr(event, "message_id", None)
            whole[message] = whole.get(message, "") + text
        elif isinstance(event, Retracted):
            shown.pop(event.message_id, None)
    assert {key: text for key, text in shown.items() if text != whole.get(key)} == {}
