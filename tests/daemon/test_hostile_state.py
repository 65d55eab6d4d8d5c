"""Whatever a tool puts in the place of files of the state directory, the next daemon starts and serves the other sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

DEEP = b"[" * 200_000


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


SPOILS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\x80\x05\x00garbage\n" * 50),
    "deep": lambda path: path.write_bytes(b'{"a":' + DEEP),
    "odd types": lambda path: path.write_bytes(b'{"pid":"x","argv":7,"cgroup":[],"limits":3,"transcript_at":1e400}\n'),
    "huge": lambda path: os.truncate(path, 10**12),
    "pipe": pipe,
    "directory": folder,
    "device": device,
}
KEPT = ("daemon.lock", "start.lock", "keeper.lock", "ctl.sock", "daemon.log")
"""Files of running processes, which tests of their own spoil."""


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_daemon_starts_whatever_lies_in_its_state_directory(serve: Callable[..., Harness], spoil: str) -> None:
    daemon = serve()
    intact, ended, running = daemon.new(), daemon.new(mode="live"), daemon.new(mode="live")
    assert intact.ask("hello")["outcome"] == "completed"
    assert ended.ask("hello")["outcome"] == "completed"
    running.prompt("@stream 3000 80\n@wait-file go\nend")
    until(lambda: len(running.chunks()) > 2000, "it says nothing", 60)
    daemon.kill()
    for path in sorted(daemon.state.rglob("*")):
        if path.is_file() and path.name not in KEPT and intact.id not in str(path):
            SPOILS[spoil](path)
    daemon.start()
    assert intact.ask("again")["outcome"] == "completed"
    assert daemon.new().ask("new")["outcome"] == "completed"
    (daemon.cwd / "go").touch()
    rows = {row["session_id"] for row in daemon.call("session/list")["sessions"]}
    assert intact.id in rows
    daemon.restart()
    assert intact.ask("once more")["outcome"] == "completed"
