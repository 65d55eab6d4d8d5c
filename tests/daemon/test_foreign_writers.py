"""One writer for a native session: a turn waits for nobody's transcript, and says whose writing it found."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody of us has started."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def say(daemon: Harness, pid: int, native: str) -> Path:
    """The file by which a CLI's process says which session it has open."""
    directory = daemon.root / "home/.local/state/clisup-demo/sessions"
    directory.mkdir(parents=True, exist_ok=True)
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    path = directory / f"{pid}.json"
    path.write_text(json.dumps({"pid": pid, "sessionId": native, "procStart": start}))
    return path


def transcript(session: SessionProbe) -> Path:
    (path,) = (session.daemon.root / "home").glob(f".local/state/clisup-demo/projects/*/{session.id}.jsonl")
    return path


def write_as_a_terminal(path: Path, prompt: str) -> None:
    """A turn of the same CLI outside of clisup."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    turn = [("user", prompt), ("assistant", "heard")]
    with path.open("a") as file:
        for role, words in turn:
            entry = {
                "type": role,
                "message": {"role": role, "content": [{"type": "text", "text": words}]},
                "timestamp": now,
            }
            file.write(json.dumps(entry) + "\n")


def foreign_writes(session: SessionProbe) -> list[dict[str, Any]]:
    return session.events("notice", code="foreign_writes")


def test_a_turn_is_refused_while_a_stranger_has_its_session_open(
    daemon: Harness, stranger: subprocess.Popen[bytes]
) -> None:
    session = daemon.new()
    session.ask("one")
    say(daemon, stranger.pid, session.id)
    refused = session.ask("two")
    assert (refused["outcome"], refused["error"]["kind"]) == ("failed", "session_busy")
    assert refused["error"]["retryable"] and str(stranger.pid) in refused["error"]["message"]
    assert len(session.events("process_started")) == 1, "its CLI must not be started"
    stranger.kill()
    stranger.wait()
    assert session.ask("@count")["text"] == "turn 2"


def test_a_live_process_is_no_stranger_and_gets_no_prompt_while_there_is_one(
    daemon: Harness, stranger: subprocess.Popen[bytes]
) -> None:
    session = daemon.new(mode="live")
    session.ask("one")
    say(daemon, session.cli(), session.id)  # as the real CLI does
    assert session.ask("two")["outcome"] == "completed"
    note = say(daemon, stranger.pid, session.id)
    refused = session.ask("three")
    assert (refused["outcome"], refused["error"]["kind"]) == ("failed", "session_busy")
    note.unlink()
    assert session.ask("@count")["text"] == "turn 3"
    assert len(session.events("process_started")) == 1 and not foreign_writes(session)


@pytest.mark.parametrize("ends", ["by the next prompt", "by its idle end"])
def test_a_live_process_whose_transcript_somebody_else_wrote_on_is_replaced_by_one_that_knows_all_of_it(
    serve: Callable[..., Harness], ends: str
) -> None:
    daemon = serve(live={"idle_s": 4} if ends == "by its idle end" else {})
    session = daemon.new(mode="live")
    session.ask("one")
    told = transcript(session).stat().st_mtime
    until(lambda: time.time() > told + 0.05)  # the kernel's clock of files is some milliseconds behind
    write_as_a_terminal(transcript(session), "two")
    if ends == "by its idle end":
        session.await_event("process_exited")
    assert session.ask("@count")["text"] == "turn 3"
    [notice] = foreign_writes(session)
    assert "2 messages" in notice["message"]
    assert len(session.events("process_started")) == 2
    session.ask("four")
    assert len(foreign_writes(session)) == 1


def test_what_a_live_process_writes_late_is_no_strangers(daemon: Harness) -> None:
    session = daemon.new(mode="live")
    session.ask("one")
    last = json.loads(transcript(session).read_text().splitlines()[-1])
    with transcript(session).open("a") as file:
        file.write(json.dumps({"type": "last-prompt", "sessionId": session.id}) + "\n")
        file.write(
            json.dumps({**last, "type": "assistant", "message": {"content": []}, "timestamp": "2020-01-01T00:00:00Z"})
            + "\n"
        )
    session.ask("two")
    assert len(session.events("process_started")) == 1 and not foreign_writes(session)


def test_a_stranger_in_another_session_is_no_reason(daemon: Harness, stranger: subprocess.Popen[bytes]) -> None:
    session = daemon.new()
    say(daemon, stranger.pid, "77b077be-1c1d-4d8b-9a3e-0d6c5b0f9a11")
    assert session.ask("one")["outcome"] == "completed"


def test_a_native_session_that_a_stranger_has_open_is_not_taken_over(
    daemon: Harness, stranger: subprocess.Popen[bytes]
) -> None:
    old = daemon.new()
    old.ask("one")
    old.call("close")
    note = say(daemon, stranger.pid, old.id)
    with pytest.raises(ClisupError) as caught:
        daemon.new(resume_native_id=old.id)
    assert caught.value.kind == "session_busy" and caught.value.data["pid"] == stranger.pid
    note.unlink()
    assert daemon.new(resume_native_id=old.id).ask("@count")["text"] == "turn 2"


def test_a_tool_of_the_session_that_says_so_stops_no_later_turn(daemon: Harness) -> None:
    """What a forged file can do ends with the process that it names; one of the session's own tree is not even believed."""
    session = daemon.new()
    turn = session.prompt("@bash sleep 60")
    session.await_event("tool_use", turn_id=turn)
    for pid in session.processes():
        say(daemon, pid, session.id)
    session.call("interrupt", turn_id=turn)
    assert session.ask("@count")["outcome"] == "completed"


def test_a_directory_of_traps_holds_no_turn_up(daemon: Harness) -> None:
    session = daemon.new()
    directory = say(daemon, os.getpid(), "another").parent
    os.mkfifo(directory / "2.json")
    (directory / "3.json").symlink_to("/dev/zero")
    (directory / "4.json").write_bytes(b"[" * 50_000)
    assert session.ask("one")["outcome"] == "completed"


def test_what_somebody_else_wrote_since_the_last_run_is_said_before_the_turn(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("one")
    session.ask("two")
    assert not foreign_writes(session)
    with transcript(session).open("ab") as file:
        file.write(b'{"type":"user","message":{"role":"user","content":"by hand"}}\n')
    assert session.ask("@count")["text"] == "turn 4"
    (notice,) = foreign_writes(session)
    assert notice["turn_id"] == "t3" and "62 bytes longer" in notice["message"]
    assert notice["seq"] < session.events("turn_started", turn_id="t3")[0]["seq"]
    session.ask("four")
    assert len(foreign_writes(session)) == 1


def test_what_was_written_is_known_across_a_restart(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("one")
    daemon.restart()
    session.ask("two")
    assert not foreign_writes(session)
    daemon.kill()
    os.utime(transcript(session))
    daemon.start()
    session.ask("three")
    assert len(foreign_writes(session)) == 1
