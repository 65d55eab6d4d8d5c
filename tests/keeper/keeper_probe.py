"""The test's side of a keeper: starts one in a fresh run directory, talks to it, and waits for conditions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEEPER = Path(__file__).parents[2] / "clisup" / "keeper" / "__main__.py"
BOUND_S = 20.0


def eventually(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """The first true value of `condition`, looked at again and again under a generous bound."""
    end = time.monotonic() + BOUND_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def copied_keeper(root: Path) -> Path:
    """Copy the keeper's package below `root`; return the file to start."""
    target = root / "clisup" / "keeper"
    shutil.copytree(KEEPER.parent, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target / KEEPER.name


def changed_keeper(root: Path, name: str, line: str, other: str) -> Path:
    """Copy the keeper, with one text of the file `name` replaced."""
    start = copied_keeper(root)
    text = (start.parent / name).read_text()
    assert text.count(line) == 1, f"{line!r} is not once in {name}"
    (start.parent / name).write_text(text.replace(line, other))
    return start


class KeeperProbe:
    """One keeper. `argv` of the CLI, and whatever the spec shall say otherwise as keywords."""

    file = KEEPER

    def __init__(self, run_dir: Path, argv: list[str], /, **spec: Any) -> None:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.dir, self.sockets = run_dir, list[socket.socket]()
        self.buffer, self.pushes = b"", list[dict[str, Any]]()
        marker = {"CLISUP_SESSION": f"{run_dir.parent.name}-{run_dir.name}", "CLISUP_RUN": "1"}
        self.spec = {
            "proto": 1, "run_dir": str(run_dir), "marker": marker, "argv": argv, "cwd": "/", "orphans": "kill",
            "env": {"PATH": "/usr/bin:/bin", **marker}, "stdin": None, "stdin_eof": True, "term_grace_s": 20, **spec,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(self.file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={}, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(self.spec).encode())
        self.process.stdin.close()

    def ready(self) -> dict[str, Any]:
        """The keeper's one line."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def connect(self, **more: Any) -> dict[str, Any]:
        """A new connection as the daemon's; returns the answer to hello. An older one of ours is left as it is."""
        self.sock, self.buffer, self.pushes = socket.socket(socket.AF_UNIX), b"", []
        self.sockets.append(self.sock)
        self.sock.settimeout(BOUND_S)
        with_fd = os.open(self.dir, os.O_PATH)
        self.sock.connect(f"/proc/self/fd/{with_fd}/ctl.sock")
        os.close(with_fd)
        self.send(op="hello", proto=1, **more)
        return self.receive("hello")["hello"]

    def start(self, **more: Any) -> dict[str, Any]:
        assert self.ready().get("ready") is True
        return self.connect(**more)

    def send(self, **message: Any) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, *kinds: str) -> dict[str, Any]:
        """The next message that has one of these keys (or is one of these pushes); others go to `pushes`."""
        while message := self.line():
            if message.get("push") in kinds or any(kind in message for kind in kinds):
                return message
            self.pushes.append(message)
        raise AssertionError(f"the keeper left before {kinds}")

    def line(self) -> dict[str, Any] | None:
        while b"\n" not in self.buffer:
            data = self.sock.recv(65536)
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def out(self) -> bytes:
        return (self.dir / "out.spool").read_bytes()

    def err(self) -> bytes:
        return (self.dir / "err.spool").read_bytes()

    def said(self, text: bytes) -> bytes:
        """Wait until stdout holds `text`, and return all of it."""
        return eventually(lambda: self.out() if text in self.out() else b"", f"{text!r} on stdout")

    def exit(self) -> dict[str, Any]:
        """The exit record, after the keeper has left."""
        eventually(lambda: (self.dir / "exit.json").exists(), "exit.json")
        self.hang_up()
        self.process.wait(BOUND_S)
        return json.loads((self.dir / "exit.json").read_text())

    def hang_up(self) -> None:
        for sock in self.sockets:
            sock.close()

    def close(self) -> None:
        """End it whatever state it is in; its CLI dies with it."""
        self.hang_up()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
