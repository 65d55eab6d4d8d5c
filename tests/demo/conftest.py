"""The demo CLI as a real process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MAIN = Path(__file__).parents[2] / "clisup" / "demo" / "__main__.py"
COMMAND = (sys.executable, "-I", "-S", str(MAIN))
BASE = ("-p", "--output-format", "stream-json", "--include-partial-messages", "--verbose")
PATIENCE_S = 20.0


class Run:
    """A run that has ended."""

    def __init__(self, stdout: bytes, stderr: bytes, code: int) -> None:
        self.stdout, self.stderr, self.code = stdout, stderr.decode(), code

    @property
    def lines(self) -> list[bytes]:
        return self.stdout.split(b"\n")[:-1]

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def results(self) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == "result"]

    @property
    def text(self) -> str:
        return str(self.results[-1]["result"])

    def of(self, kind: str, subtype: str | None = None) -> list[dict[str, Any]]:
        return [f for f in self.frames if f["type"] == kind and subtype in (None, f.get("subtype"))]

    def deltas(self) -> list[str]:
        events = [frame["event"] for frame in self.of("stream_event")]
        return [event["delta"]["text"] for event in events if event.get("delta", {}).get("type") == "text_delta"]


class Live:
    """A run that goes on; it is killed at the end of the test."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = b""

    def wait_for(self, needle: bytes) -> None:
        """Read stdout until `needle` has come."""
        assert self.process.stdout is not None
        while needle not in self.seen:
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, f"stdout ended without {needle!r}: {self.seen!r}"
            self.seen += chunk

    def send(self, signum: signal.Signals) -> Run:
        """Send a signal and wait for the end."""
        self.process.send_signal(signum)
        return self.end()

    def end(self) -> Run:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return Run(self.seen + out, err, self.process.returncode)


class Demo:
    """Starts the demo CLI in a directory of the test's own."""

    def __init__(self, cwd: Path, home: Path) -> None:
        self.cwd, self.home = cwd, home
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "DEMO_CLI_HOME": str(home / "demo")}
        self.leftovers: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, prompt: str, *args: str, base: tuple[str, ...] = BASE, **options: Any) -> Live:
        process = subprocess.Popen(
            [*COMMAND, *base, *args], stdin=subprocess.PIPE, stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE, cwd=self.cwd, env=self.env, **options,
        )  # fmt: skip
        self._processes.append(process)
        assert process.stdin is not None
        process.stdin.write(prompt.encode())
        process.stdin.close()
        process.stdin = None
        return Live(process)

    def run(self, prompt: str, *args: str, base: tuple[str, ...] = BASE) -> Run:
        return self.start(prompt, *args, base=base).end()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for pid in self.leftovers:
            _kill(pid)
        assert self.eventually(lambda: not [_kill(pid) for pid in self.survivors()]), "processes of this test are left"

    def survivors(self) -> list[int]:
        """The processes that carry this test's environment, apart from the demo CLI itself."""
        own = {process.pid for process in self._processes}
        mark = f"DEMO_CLI_HOME={self.env['DEMO_CLI_HOME']}".encode()
        return [pid for pid in _pids() if pid not in own and mark in _environment(pid) and self.is_alive(pid)]

    @staticmethod
    def eventually(condition: Callable[[], bool]) -> bool:
        """Poll until `condition` holds; false when patience ends."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.005)
        return False

    @staticmethod
    def is_alive(pid: int) -> bool:
        """Whether a process runs. A zombie is dead."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def transcripts(self, session_id: str) -> list[Path]:
        return list((self.home / "demo" / "projects").glob(f"*/{session_id}.jsonl"))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    cwd, home = tmp_path / "cwd", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    demo = Demo(cwd, home)
    yield demo
    demo.close()
