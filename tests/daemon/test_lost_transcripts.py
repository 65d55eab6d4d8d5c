"""A session whose CLI kept no transcript, or an empty one, says so once and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness
from session_probe import SessionProbe


def outcomes(session: SessionProbe, turns: int) -> list[str]:
    ends = [session.ask("hello") for _ in range(turns)]
    return [end["error"]["kind"] if end.get("error") else end["outcome"] for end in ends]


def notices(session: SessionProbe) -> list[str]:
    return [event["turn_id"] for event in session.events("notice", code="history_not_kept")]


@pytest.mark.fault(84)
def test_a_transcript_that_was_never_written_is_told_after_its_turn_and_fails_no_later_one(
    serve: Callable[..., Harness],
) -> None:
    session = serve(demo={"args": ["--no-session-persistence"]}).new()
    assert outcomes(session, 1) == ["completed"] and notices(session) == ["t1"]
    assert outcomes(session, 3) == ["completed"] * 3 and notices(session) == ["t1"]


@pytest.mark.fault(84)
def test_an_empty_transcript_costs_one_turn_and_the_session_goes_on_under_another_id(daemon: Harness) -> None:
    session = daemon.new()
    assert outcomes(session, 1) == ["completed"]
    (path,) = (daemon.root / "home").glob(f".local/state/clisup-demo/projects/*/{session.id}.jsonl")
    path.write_bytes(b"")
    assert outcomes(session, 3) == ["session_not_found", "completed", "completed"]
    assert "1 turn" not in session.ask("@count")["text"] and path.read_bytes() == b""
    assert notices(session) == []


@pytest.mark.fault(41)
def test_a_directory_that_is_gone_is_named_and_the_session_goes_on_when_it_is_there_again(
    daemon: Harness, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    session = daemon.new(cwd=str(place))
    session.ask("hello")
    place.rmdir()
    error = session.ask("hello")["error"]
    assert error["kind"] == "spawn_failed" and f"directory {place}" in error["message"]
    place.mkdir()
    assert session.ask("hello")["outcome"] == "completed"
