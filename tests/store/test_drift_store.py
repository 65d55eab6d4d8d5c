"""Drift and names on the disk: whole or not there, private, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.errors import WorldError
from clisup.ops.drift import DriftBook, FrameSample, NameCheck
from clisup.store.drift_store import (
    drift_file,
    known_fields,
    last_check,
    load_checks,
    load_drift,
    save_checks,
    save_drift,
)


def book() -> DriftBook:
    sample = FrameSample(None)
    sample.frames["novel"] = 3
    made = DriftBook()
    made.add("claude", "2.1", sample, ts="t")
    return made


def test_counts_are_read_as_they_were_written(tmp_path: Path) -> None:
    save_drift(str(tmp_path), book())
    assert list(load_drift(str(tmp_path))) == list(book())
    assert Path(drift_file(str(tmp_path))).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"entries": 7}'])
def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    Path(drift_file(str(tmp_path))).write_text(text)
    assert list(load_drift(str(tmp_path))) == []
    Path(drift_file(str(tmp_path))).unlink()
    Path(drift_file(str(tmp_path))).mkdir()
    assert list(load_drift(str(tmp_path))) == []


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorldError) as caught:
        save_drift(str(tmp_path / "absent"), book())
    assert caught.value.kind == "storage_failed"


def test_the_fields_of_claudes_frames_are_shipped() -> None:
    fields = known_fields("claude")
    assert fields is not None and "session_id" in fields["system/init"]


def test_the_names_of_a_check_are_there_for_the_next_one(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    assert load_checks(state, "claude") == [] and last_check(state, "claude") is None
    checks = [NameCheck("1", "2026-01-01", ("A", "B"))]
    save_checks(state, "claude", checks)
    assert load_checks(state, "claude") == checks
    assert last_check(state, "claude") == "1" and last_check(state, "codex") is None
