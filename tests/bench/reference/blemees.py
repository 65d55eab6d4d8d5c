"""blemees-agentd from a checkout that the user made: the same fakes as its `claude`, one client for all sessions.

Its own defaults, but for the caps on sessions. Spoken: its protocol `blemees-agent/1`, which it had up to 0.10; its repository was
named blemees-daemon then.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.flow import Flow
from tests.bench.frames import Mix
from tests.bench.native_programs import build
from tests.bench.place import PATIENCE_S, Gate, Sinks, cpu_of, end, prompt_of
from tests.bench.stolen import Stolen

__all__ = ["through_blemees"]

STOP_S = 10.0


def through_blemees(scratch: Path, programs: Path, checkout: Path, mix: Mix, lines: int, sessions: int) -> Flow:
    """As `through_daemon`. Raises AssertionError where it does not start or answer."""
    part, fake = lines // sessions, build("fakecli", programs)
    gate = Gate(scratch / "blemees.gate")
    try:
        with _served(scratch / "blemees", checkout, fake) as (daemon, path), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(path))
            _say(client, {"type": "agent.hello", "protocol": "blemees-agent/1", "client": "bench"}, "agent.hello_ack")
            prompt = prompt_of("flood", gate, mix, part)
            names = [_open(client, scratch) for _ in range(sessions)]
            for name in names:
                _send(
                    client, {"type": "agent.user", "session_id": name, "message": {"role": "user", "content": prompt}}
                )
            client.settimeout(None)
            with Sinks(build("sink", programs), [("-", "agent.result", str(sessions))], client) as sinks:
                _await_fakes(daemon.pid, sessions)
                stolen, before, begun = Stolen(), cpu_of(daemon.pid), gate.open()
                seen = sinks.results()[0]
                cpu, share = cpu_of(daemon.pid) - before, stolen.share()
    finally:
        gate.close()
    assert seen["turns"] == sessions, "not all of its turns came to an end"
    return Flow(part * sessions, (seen["ended"] - begun) / 1e9, cpu, events=seen["lines"], stolen=share)


@contextmanager
def _served(root: Path, checkout: Path, fake: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    config, path = root / "config.toml", root / "s"
    config.write_text("max_sessions_per_connection = 1000\nmax_concurrent_sessions = 1000\nshutdown_grace_s = 0\n")
    argv = [
        sys.executable,
        "-m",
        "blemees_agent",
        "--socket",
        str(path),
        "--claude",
        str(fake),
        "--config",
        str(config),
    ]
    environment = {"PATH": os.defpath, "HOME": str(root), "PYTHONPATH": str(checkout)}
    with (root / "log").open("wb") as log:
        daemon = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=root)
    try:
        until = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert daemon.poll() is None and time.monotonic() < until, (root / "log").read_text()[-2000:]
            time.sleep(0.02)
        yield daemon, path
    finally:
        daemon.terminate()  # it ends its children
        try:
            daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        end([daemon])
        shutil.rmtree(root, ignore_errors=True)


def _open(client: socket.socket, cwd: Path) -> str:
    name = str(uuid.uuid4())
    options = {"cwd": str(cwd), "include_partial_messages": True, "permission_mode": "default"}
    _say(client, {"type": "agent.open", "id": name, "session_id": name, "backend": "claude", "options": {"claude": options}},
         "agent.opened")  # fmt: skip
    return name


def _say(client: socket.socket, frame: dict[str, Any], answer: str) -> None:
    _send(client, frame)
    while (said := _line(client))["type"] != answer:
        assert said["type"] != "agent.error", said


def _send(client: socket.socket, frame: dict[str, Any]) -> None:
    client.sendall(json.dumps(frame).encode() + b"\n")


def _line(client: socket.socket) -> dict[str, Any]:
    """One line, a byte at a time: what comes after it is for the sink."""
    data = bytearray()
    while not data.endswith(b"\n"):
        data += (byte := client.recv(1))
        assert byte, "it hung up: is it of 0.10?"
    return dict(json.loads(data))


def _await_fakes(pid: int, count: int) -> None:
    """Until so many of its children have said their first line and wait at the gate (flock)."""
    until = time.monotonic() + PATIENCE_S
    while sum(_waits(child) for child in _children(pid)) < count:
        assert time.monotonic() < until, "its CLIs do not start"
        time.sleep(0.02)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _waits(pid: str) -> bool:
    try:
        return "lock" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False
