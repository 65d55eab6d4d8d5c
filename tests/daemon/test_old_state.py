"""State that another version wrote: an older one is read and gone on with, a newer one is refused whole with the way out."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.errors import ClisupError
from clisup.model.journal import encode_snapshot

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = tuple(f"{digit * 8}-0000-4000-8000-000000000000" for digit in "abc")


def unpack(fixture: Path, state: Path) -> list[str]:
    """Put a fixture there, under ids of its own: processes are found by them, and this may run twice at once."""
    shutil.copytree(fixture, state)
    ids = []
    for name in NAMES:
        ids.append(str(uuid.uuid4()))
        for path in (path for path in (state / "sessions" / name).rglob("*") if path.is_file()):
            path.write_bytes(path.read_bytes().replace(name.encode(), ids[-1].encode()))
        (state / "sessions" / name).rename(state / "sessions" / ids[-1])
    return ids


@pytest.mark.fault(61)
@pytest.mark.parametrize("fixture", sorted(path.name for path in FIXTURES.glob("state-*")))
def test_a_state_directory_of_an_older_version_is_read_and_gone_on_with(
    serve: Callable[..., Harness], fixture: str
) -> None:
    daemon = serve(start=False)
    ids = unpack(FIXTURES / fixture, daemon.state)
    old = {path: path.read_bytes() for path in daemon.state.rglob("*.jsonl")}
    daemon.start()
    assert daemon.call("daemon/status")["damaged_sessions"] == {}
    closed, idle, busy = (SessionProbe(daemon, id_) for id_ in ids)

    assert closed.get()["state"] == "closed"
    assert [event["text"] for event in closed.events("turn_completed")] == ["You said: the only turn"]

    assert [event["outcome"] for event in idle.events("turn_completed")] == ["completed", "completed"]
    assert idle.call("prompt", prompt="?", key="the ")["delivery"] == "duplicate"
    turn = idle.prompt(
        "the third turn"
    )  # its CLI has no transcript on this machine: how it ends is not the question here
    assert turn == "t3" and idle.end_of(turn)

    assert busy.end_of("t1")["outcome"] == "completed" and busy.end_of("t1")["text"].endswith("to the end")
    assert busy.chunks() == list(range(5)) and next(e["exit_code"] for e in busy.events("process_exited")) == 0
    assert busy.end_of("t2")["turn_id"] == "t2"
    assert busy.call("prompt", prompt="?", key="queued")["turn_id"] == "t2"

    assert all(path.read_bytes().startswith(before) for path, before in old.items())
    daemon.restart()  # segments that begin in the old version and go on in the new one
    assert daemon.call("daemon/status")["damaged_sessions"] == {} and idle.end_of("t3") and busy.end_of("t2")


@pytest.mark.fault(61)
def test_a_journal_of_a_newer_version_is_refused_whole_with_the_way_out(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("hello")
    daemon.kill()
    newer = session.dir / "journal" / "000000009999.jsonl"
    newer.write_bytes(encode_snapshot({}).replace(b'"v":3', b'"v":4'))
    before = {path: path.read_bytes() for path in (session.dir / "journal").iterdir()}
    daemon.start()
    reason = daemon.call("daemon/status")["damaged_sessions"][session.id]
    assert "a newer clisup wrote it (version 4)" in reason and "use that version" in reason
    with pytest.raises(ClisupError, match="a newer clisup wrote it"):
        session.get()
    assert {path: path.read_bytes() for path in (session.dir / "journal").iterdir()} == before
    assert daemon.new().ask("hello")["outcome"] == "completed"
