"""A disk that is full, and a journal that was torn: nothing is lost, and everybody is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, until

from clisup.errors import ClisupError


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
        with pytest.raises(ClisupError) as refused:
            small_disk.new()
        assert refused.value.kind == "storage_failed"
        _relieve(small_disk)
        assert wire.answer(close) == {"ok": True}
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
