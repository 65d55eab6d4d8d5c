"""The fake CLI as a real process: the demo CLI, with the directives of the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dialogue import answer, ask, say, uuid_of
from tests.fakecli import COMMAND

BASE = ("-p", "--output-format", "stream-json", "--include-partial-messages", "--verbose")
LIVE = ("--input-format", "stream-json", "--permission-prompt-tool", "stdio")
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


class Talk:
    """A live process that is told things. `frames` holds what it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], cwd: Path) -> None:
        self.process, self.cwd = process, cwd
        self.frames: list[dict[str, Any]] = []
        self._bytes = b""
        self._place = 0

    def line(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def say(self, content: str | list[dict[str, Any]], name: str | None = None, **fields: Any) -> None:
        """A user message; `name` makes its uuid."""
        self.line(say(content, name, **fields).line)

    def ask(self, subtype: str, request_id: str | None = None, **fields: Any) -> None:
        """A control request; its id is its subtype unless it is given."""
        self.line(ask(subtype, request_id, **fields).line)

    def answer(self, behavior: str, **fields: Any) -> None:
        """The answer to the latest question for a permission."""
        request = [frame for frame in self.frames if frame["type"] == "control_request"][-1]
        self.line(answer(behavior, **fields).line.replace("$REQUEST", request["request_id"]))

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next frame of this type with these fields, behind the one that was waited for last."""
        while True:
            for at in range(self._place, len(self.frames)):
                frame = self.frames[at]
                if frame["type"] == kind and fields.items() <= frame.items():
                    self._place = at + 1
                    return frame
            self._place = len(self.frames)
            assert self._read(), f"stdout ended without {kind} {fields}: {self.frames}"

    def idle(self) -> None:
        self.until("system", state="idle")

    def asked(self) -> dict[str, Any]:
        """The request of the next question for a permission."""
        return dict(self.until("control_request")["request"])

    def answered(self) -> dict[str, Any]:
        """The next answer to a control request."""
        return dict(self.until("control_response")["response"])

    def waits(self, name: str) -> None:
        """Until the message of this name is queued."""
        self.until("command_lifecycle", command_uuid=uuid_of(name), state="queued")

    def delta(self) -> None:
        """Until the model has said something."""
        while self.until("stream_event")["event"]["type"] != "content_block_delta":
            pass

    def calls(self) -> None:
        """Until a tool is called and its message is over."""
        while self.until("stream_event")["event"].get("delta", {}).get("stop_reason") != "tool_use":
            pass

    def go(self, name: str = "go") -> None:
        """Let a script go on that waits for this file."""
        (self.cwd / name).touch()

    def end(self, signum: signal.Signals | None = None) -> Run:
        """End stdin, or send a signal, and wait for the process's end."""
        assert self.process.stdin is not None
        if signum is not None:
            self.process.send_signal(signum)
        else:
            self.process.stdin.close()
        while self._read():
            pass
        assert self.process.stderr is not None
        err = self.process.stderr.read()
        return Run(
            b"".join(json.dumps(frame).encode() + b"\n" for frame in self.frames), err, self.process.wait(PATIENCE_S)
        )

    def _read(self) -> bool:
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self._bytes = (self._bytes + chunk).split(b"\n")
        self.frames += [json.loads(line) for line in lines]
        return bool(chunk)


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

    def live(self, *args: str, base: tuple[str, ...] = (*BASE, *LIVE), states: bool = True) -> Talk:
        """A live process; in it tools ask for their permission, and it tells its state."""
        env = {**self.env, "IS_SANDBOX": "1", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1" if states else "0"}
        process = subprocess.Popen(
            [*COMMAND, *base, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=self.cwd, env=env,
        )  # fmt: skip
        self._processes.append(process)
        return Talk(process, self.cwd)

    def run(self, prompt: str, *args: str, base: tuple[str, ...] = BASE) -> Run:
        return self.start(prompt, *args, base=base).end()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
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
