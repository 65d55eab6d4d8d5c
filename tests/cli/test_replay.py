"""`clisup replay`: a recording in words and as JSON, and what the decoder now says otherwise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.recorded import RECORDINGS
from tests.versions import VERSIONS

SHIPPED = RECORDINGS / "claude" / VERSIONS["claude"]


@pytest.fixture
def fixture(tmp_path: Path) -> Path:
    """A recording outside of the folder that tells its kind."""
    for suffix in (".jsonl", ".meta.json"):
        shutil.copy(SHIPPED / f"tool_denied{suffix}", tmp_path / f"x{suffix}")
    meta = json.loads((tmp_path / "x.meta.json").read_text())
    data = (tmp_path / "x.jsonl").read_bytes()
    timing = [[data.index(b"\n") + 1, 0.25], [len(data), 1.5]]
    (tmp_path / "x.meta.json").write_text(json.dumps({**meta, "kind": "claude", "timing": timing, "duration_s": 2}))
    return tmp_path / "x.jsonl"


def test_a_shipped_recording_is_told_in_words_to_the_turns_end(clisup: Callable[..., Any]) -> None:
    ran = clisup("replay", str(SHIPPED / "tool_denied.jsonl"))
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split()[:2] == ["-", "session_init"]
    assert "tool_use            Write no.txt" in ran.out
    assert lines[-1].endswith("denied: Write")
    assert any("content_delta" in line for line in lines)
    fewer = clisup("replay", "--no-deltas", str(SHIPPED / "tool_denied.jsonl")).out
    assert fewer.splitlines() == [line for line in lines if "content_delta" not in line]


def test_times_are_those_of_the_recording(clisup: Callable[..., Any], fixture: Path) -> None:
    lines = clisup("replay", str(fixture)).out.splitlines()
    assert {line.split()[0] for line in lines} == {"+0.250", "+1.500", "+2.000"}
    assert lines[-1].split()[:2] == ["+2.000", "turn_completed"]


def test_json_is_what_check_compares_with(clisup: Callable[..., Any], fixture: Path) -> None:
    assert clisup("replay", "--check", str(fixture)).code == 2
    events = clisup("replay", "--json", str(fixture)).out
    assert [json.loads(line)["type"] for line in events.splitlines()][-1] == "turn_completed"
    fixture.with_suffix(".events.jsonl").write_text(events)
    assert clisup("replay", "--check", str(fixture)).code == 0
    fixture.with_suffix(".events.jsonl").write_text(events.replace("I may not.", "I may."))
    ran = clisup("replay", "--check", str(fixture))
    assert ran.code == 1
    changed = [line for line in ran.out.splitlines() if line.startswith("-{")]
    assert changed and all("I may." in line for line in changed)
    assert "the decoder now gives other events" in ran.err


def test_each_turn_of_a_live_process_has_its_end(clisup: Callable[..., Any]) -> None:
    out = clisup("replay", str(SHIPPED / "live_background.jsonl")).out
    assert out.count("turn_completed") == 3


def test_a_one_shot_process_with_background_work_has_one_end(clisup: Callable[..., Any]) -> None:
    out = clisup("replay", str(SHIPPED / "background_bash.jsonl")).out
    assert out.count("turn_completed") == 1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.with_suffix(".meta.json").unlink(), "No such file"),
        (lambda path: path.with_suffix(".meta.json").write_text('{"kind"'), "no JSON"),
        (lambda path: path.with_suffix(".meta.json").write_text('{"kind": "codecs"}'), "no adapter has that name"),
        (lambda path: path.with_suffix(".meta.json").write_text("{}"), "no kind of backend"),
        (lambda path: path.with_suffix(".meta.json").write_text('{"format": 9}'), "newer clisup"),
        (lambda path: path.with_suffix(".meta.json").write_bytes(b"\xff" * 1000), "no JSON"),
    ],
)
def test_a_missing_truncated_or_foreign_file_is_an_error_with_a_way_out(
    clisup: Callable[..., Any], fixture: Path, spoil: Callable[[Path], Any], said: str
) -> None:
    spoil(fixture)
    ran = clisup("replay", str(fixture))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "hint: " in ran.err


def test_a_directory_and_a_file_of_another_name_are_no_recordings(clisup: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").mkdir()
    assert clisup("replay", str(tmp_path / "d.jsonl")).code == 2
    for name in ("x.txt", "x.events.jsonl", "x"):
        assert "must end in .jsonl" in clisup("replay", str(tmp_path / name)).err


def test_a_kind_can_be_given_where_the_recording_has_none(clisup: Callable[..., Any], fixture: Path) -> None:
    fixture.with_suffix(".meta.json").write_text("{}")
    assert "I may not." in clisup("replay", "--kind", "claude", str(fixture)).out


def test_whatever_the_cli_said_replay_ends_in_words(clisup: Callable[..., Any], fixture: Path) -> None:
    fixture.write_bytes(b"\x1b[31mred\n\xff\xfe\n[[[\n" + fixture.read_bytes()[:500])
    ran = clisup("replay", str(fixture))
    assert ran.code == 0
    assert "unparsed" in ran.out
    assert "\x1b" not in ran.out
