"""A disk that is full, and a journal that was torn: nothing is lost, and everybody is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError
from tests.journals import entry_at


@pytest.fixture
def small_disk(serve: Callable[..., Harness]) -> Iterator[Harness]:
    """A daemon whose state lies on a file system of 8 MiB."""
    daemon = serve(start=False, timeouts={"model_idle": 1.0, "linger": 1.0})
    daemon.state.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(daemon.state)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and a mount namespace that takes tmpfs")
    daemon.start()
    try:
        yield daemon
    finally:
        (daemon.state / "ballast").unlink(missing_ok=True)
        try:
            daemon.close()
        finally:
            subprocess.run(["umount", "-l", str(daemon.state)], check=True)
            shutil.rmtree(daemon.root, ignore_errors=True)


def _fill(daemon: Harness) -> None:
    with open(daemon.state / "ballast", "ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def _relieve(daemon: Harness) -> None:
    (daemon.state / "ballast").unlink()


def _refusal(daemon: Harness) -> str | None:
    """The kind with which a new session is refused; none where the daemon had dropped a file meanwhile and there was room."""
    _fill(daemon)
    try:
        daemon.new()
    except ClisupError as error:
        return error.kind
    return None


@pytest.mark.fault(55)
def test_a_full_disk_in_mid_turn_loses_no_event(small_disk: Harness, tmp_path: Path) -> None:
    session = small_disk.new()
    session.prompt(f"@stream 200 40\n@wait-file {tmp_path}/go\n@stream 400 40 0.002\n@huge 300000\nbye", key="k")
    session.await_event("content_delta")
    until(lambda: len(session.chunks()) == 200)
    _fill(small_disk)
    (tmp_path / "go").touch()
    until(lambda: session.get()["phase"] == "blocked")
    with pytest.raises(ClisupError) as refused:
        session.prompt("not now")
    assert refused.value.kind == "storage_failed"
    with open(tmp_path / "since", "w"):
        until(lambda: _seconds_since(tmp_path / "since") > 1.5)  # longer than model_idle: the timers stand still
    assert session.get()["phase"] == "blocked"
    _relieve(small_disk)
    end = session.end_of("t1")
    assert end["outcome"] == "completed" and session.ask("again", key="k")["text"].endswith("bye")
    assert session.chunks() == [*range(200), *range(400)]
    codes = [event["code"] for event in session.events("notice")]
    assert "storage_blocked" in codes and "storage_recovered" in codes
    assert not session.events("watchdog", action="fired")


def _seconds_since(path: Path) -> float:
    import time

    return time.time() - path.stat().st_mtime


@pytest.mark.fault(56)
def test_an_exit_on_a_full_disk_is_still_recorded(small_disk: Harness, tmp_path: Path) -> None:
    session = small_disk.new()
    session.prompt(f"@wait-file {tmp_path}/go\n@exit 9")
    pid = session.cli()
    _fill(small_disk)
    (tmp_path / "go").touch()
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    small_disk.kill()
    _relieve(small_disk)
    small_disk.start()
    session.end_of("t1")
    assert [event["exit_code"] for event in session.events("process_exited")] == [9]


@pytest.mark.fault(55)
def test_closing_a_session_on_a_full_disk_waits_for_room(small_disk: Harness) -> None:
    session, other = small_disk.new(), small_disk.new()
    session.ask("hello")
    _fill(small_disk)
    with small_disk.wire() as wire:
        close = wire.post("session/close", session_id=session.id)
        assert other.get()["state"] == "idle" and small_disk.call("ping")
        assert until(lambda: _refusal(small_disk)) == "storage_failed"
        _relieve(small_disk)
        assert wire.answer(close)["ok"]
    assert session.get()["state"] == "closed" and other.ask("hello")["outcome"] == "completed"


@pytest.mark.fault(57)
@pytest.mark.parametrize("lost", [1, 37, 3000])
def test_a_torn_journal_is_rebuilt_from_the_spool(serve: Callable[..., Harness], tmp_path: Path, lost: int) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@stream 200 40\n@wait-file {tmp_path}/go\n@stream 50")
    until(lambda: len(session.chunks()) == 200)
    before = session.events()
    daemon.kill()
    journal = next((session.dir / "journal").iterdir())
    os.truncate(journal, journal.stat().st_size - lost)
    daemon.start()
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    assert session.chunks() == [*range(200), *range(50)]
    again = [{**event, "ts": None} for event in session.events() if event["source"] == "backend"]
    once = [{**event, "ts": None} for event in before if event["source"] == "backend"]
    assert [{**e, "seq": None} for e in again[: len(once)]] == [{**e, "seq": None} for e in once]


def _spoil(session: SessionProbe, type_: str) -> tuple[Path, int]:
    """One wrong byte in the first event of this type. Gives the segment and where the event's block begins."""
    journal = next((session.dir / "journal").iterdir())
    data = journal.read_bytes()
    at = data.index(f'"type":"{type_}"'.encode())
    journal.write_bytes(data[: at + 9] + b"#" + data[at + 10 :])
    return journal, entry_at(data, at)[0]


@pytest.mark.fault(58)
def test_a_cli_of_a_damaged_session_is_not_left_running_unwatched(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session, other = daemon.new(), daemon.new()
    session.prompt("@bash sleep 600")
    session.await_event("tool_use")
    until(lambda: len(session.processes()) >= 2)  # the tool is told before its process is there
    daemon.kill()
    journal, offset = _spoil(session, "session_init")
    before = journal.read_bytes()
    daemon.start()
    until(lambda: not session.processes())
    reason = daemon.call("daemon/status")["damaged_sessions"][session.id]
    assert f"{journal}, because it is damaged at byte {offset}: a wrong checksum" in reason
    assert f"`truncate -s {offset}`" in reason and "its CLI was still running, in run 1, and was ended" in reason
    assert journal.read_bytes() == before and other.ask("hello")["outcome"] == "completed"
    assert "session not loaded" in daemon.log.read_text()


@pytest.mark.fault(58)
def test_cut_at_the_damage_a_session_goes_on_from_there(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    for text in ("@stream 9", "the second", "the third"):
        session.ask(text)
    daemon.stop()
    journal, offset = _spoil(session, "content_delta")
    daemon.start()
    assert f"`truncate -s {offset}`" in daemon.call("daemon/status")["damaged_sessions"][session.id]
    daemon.stop()
    os.truncate(journal, offset)
    daemon.start()
    assert daemon.call("daemon/status")["damaged_sessions"] == {}
    assert session.end_of("t1")["outcome"] == "completed" and session.chunks() == list(range(9))  # from the spool
    assert session.ask("the second, again")["outcome"] == "completed"
    assert sorted(path.name for path in (session.dir / "runs").iterdir()) == ["1", "2", "3", "4"]


@pytest.mark.fault(57)
def test_a_tail_torn_in_a_character_of_many_bytes_is_made_again(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"ü€🙂\n@wait-file {tmp_path}/go\nend")
    session.await_event("content_delta", text="ü€🙂")
    daemon.kill()
    journal = next((session.dir / "journal").iterdir())
    os.truncate(journal, journal.read_bytes().rindex("🙂".encode()) + 2)
    daemon.start()
    (tmp_path / "go").touch()
    assert session.end_of("t1")["text"] == "ü€🙂\nend"
    assert next(event["text"] for event in session.events("content_delta")).startswith("ü€🙂")


@pytest.mark.fault(57)
@pytest.mark.parametrize("head", [b"", b'{"crc":"00', b"\0" * 100])
def test_a_segment_whose_first_line_is_torn_or_missing_is_dropped(serve: Callable[..., Harness], head: bytes) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("hello")
    before = session.events()
    daemon.kill()
    (session.dir / "journal" / f"{len(before) + 1:012d}.jsonl").write_bytes(head)
    daemon.start()
    assert session.events() == before and session.ask("on")["outcome"] == "completed"
