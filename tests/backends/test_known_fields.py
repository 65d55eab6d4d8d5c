"""The fields that frames are known to have are those of all recordings, and no recording has others."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.backends.registry import get_adapter
from clisup.backends.registry import kinds as registered
from clisup.ops.drift import FrameSample
from clisup.store.drift_store import known_fields
from tests.backends.known_fields import TARGET, kinds, text_of
from tests.backends.recorded import PATHS, Recording, name_of


def test_there_is_something_to_compare_with() -> None:
    assert "claude" in kinds()


@pytest.mark.parametrize("kind", kinds())
def test_the_file_is_what_the_recordings_say(kind: str) -> None:
    file = TARGET / f"{kind}.json"
    assert file.exists() and file.read_text() == text_of(kind), "write it anew: python -m tests.backends.known_fields"


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_no_recording_drifts(path: Path) -> None:
    recording = Recording(path)
    sample = FrameSample(known_fields(path.parents[1].name))
    for line, decoded in zip(recording.lines(), recording.decode(), strict=False):
        sample.see(line, decoded.events)
    assert (sample.frames, sample.fields) == ({}, {})


def test_a_kind_without_recordings_has_no_known_fields() -> None:
    assert known_fields("unheard-of") is None
    assert known_fields("../../pyproject") is None


@pytest.mark.parametrize("kind", registered())
def test_every_adapter_says_whose_fields_hold_for_its_frames(kind: str) -> None:
    assert get_adapter(kind).fields in {kind, "claude"}
