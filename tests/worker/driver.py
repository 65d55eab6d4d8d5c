"""The real worker process under test: what is written on its stdin, its frames, and its events by the decoder of claude."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from clisup.backends.base import Carried, LaunchRequest, Terminal
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.model.events import EventBase
from clisup.model.lines.framing import Line
from tests.worker.fake_api import MODEL, FakeApi

__all__ = ["KEY", "KEY_ENV", "TOOL_SERVER", "WAIT_S", "Worker", "eventually", "mcp_config", "worker"]

KEY, KEY_ENV = "sk-secret-0123456789", "FAKE_API_KEY"
WAIT_S = 60.0
TOOL_SERVER = Path(__file__).parents[1] / "e2e" / "tool_server.py"
Frame = dict[str, Any]
E = TypeVar("E", bound=EventBase)
T = TypeVar("T")


def eventually(find: Callable[[], T | None], what: str = "it") -> T:
    """What `find` gives as soon as it gives something."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if found := find():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen")


def mcp_config(tmp_path: Path, **entries: Frame) -> tuple[str, ...]:
    """The arguments for these servers; without any, the tool server under the name `clisup`."""
    servers = entries or {"clisup": {"command": sys.executable, "args": [str(TOOL_SERVER), str(tmp_path / "calls")]}}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return ("--mcp-config", str(path))


class Worker:
    """One process. `say`, `control` and `reply` write its stdin; `wait` and `end` read it."""

    def __init__(self, api: FakeApi | str, home: Path, *args: str, url: str | None = None, env: dict[str, str] | None = None,
                 session: str | None = None, resume: str | None = None, live: bool = False, model: str = MODEL) -> None:  # fmt: skip
        self.session = resume or session or str(uuid.uuid4())
        self.live, self.home = live, home
        dialect = api if isinstance(api, str) else api.api
        base_url = url if url is not None else api.url if isinstance(api, FakeApi) else ""
        self.argv = [
            sys.executable, "-I", "-m", "clisup.worker", "--api", dialect, "--base-url", base_url, "--key-env", KEY_ENV,
            "--model", model, *(("--resume", resume) if resume else ("--session-id", self.session)),
            *(("--permission-prompt-tool", "stdio") if live else ()), *args,
        ]  # fmt: skip
        variables = {"HOME": str(home), "PATH": os.environ["PATH"], KEY_ENV: KEY, **(env or {})}
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=home, bufsize=0,
            env={name: value for name, value in variables.items() if value},
        )  # fmt: skip
        self.lines: list[bytes] = []
        self.stderr = b""
        self._readers = [threading.Thread(target=self._read_stdout), threading.Thread(target=self._read_stderr)]
        for reader in self._readers:
            reader.start()

    # stdin

    def write(self, frame: Frame | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")

    def say(self, content: Any = "Hello.", prompt_id: str | None = None, **more: Any) -> None:
        named = {"uuid": prompt_id} if prompt_id else {}
        self.write({"type": "user", "message": {"role": "user", "content": content}, **named, **more})

    def control(self, subtype: str, **fields: Any) -> Frame:
        """Ask, and return the answer."""
        request_id = str(uuid.uuid4())
        self.write({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})
        found = self.wait(
            lambda frame: frame["type"] == "control_response" and frame["response"]["request_id"] == request_id
        )
        return dict(found["response"])

    def reply(self, request: Frame, **response: Any) -> None:
        said = {"subtype": "success", "request_id": request["request_id"], "response": response}
        self.write({"type": "control_response", "response": said})

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    # stdout

    @property
    def frames(self) -> list[Frame]:
        return [json.loads(line) for line in list(self.lines)]

    def wait(self, wanted: Callable[[Frame], Any] | str, count: int = 1) -> Frame:
        """The `count`-th frame that is wanted: a predicate, or a text that its line holds."""

        def found() -> Frame | None:
            frames = [
                frame
                for line, frame in zip(list(self.lines), self.frames, strict=False)
                if (wanted.encode() in line if isinstance(wanted, str) else wanted(frame))
            ]
            if len(frames) < count and self.process.poll() is not None and not self._readers[0].is_alive():
                raise AssertionError(f"the worker has ended without {wanted}: {self.frames} {self.stderr!r}")
            return frames[count - 1] if len(frames) >= count else None

        return eventually(found, f"{wanted} of {self.frames}")

    def result(self, count: int = 1) -> Frame:
        return self.wait(lambda frame: frame["type"] == "result", count)

    def ended(self) -> int:
        """The exit code, once the process has ended."""
        code = self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return code

    def end(self) -> int:
        """End of stdin, and the exit code."""
        self.close()
        return self.ended()

    def ask(self, content: Any = "Hello.", **more: Any) -> Terminal:
        """A whole one-shot turn: its end as the daemon sees it."""
        self.say(content, **more)
        self.end()
        return self.terminals[-1]

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    # what the daemon makes of it

    @property
    def turns(self) -> list[tuple[list[EventBase], Terminal]]:
        """The events and the end of each turn."""
        request = LaunchRequest((), "", self.session, False, "/", live=True) if self.live else None
        decoder = ClaudeAdapter().decoder(Carried(cost_usd=0.0), request)
        decoded = [decoder.decode(Line(0, len(line), line.rstrip(b"\n"))) for line in list(self.lines)]
        turns: list[tuple[list[EventBase], Terminal]] = []
        events: list[EventBase] = []
        for one in decoded:
            events += one.events
            if one.terminal is not None:
                turns.append((events, one.terminal))
                events = []
        return turns

    @property
    def terminals(self) -> list[Terminal]:
        return [terminal for _, terminal in self.turns]

    def events(self, kind: type[E]) -> list[E]:
        return [event for events, _ in self.turns for event in events if isinstance(event, kind)]

    def transcript(self) -> list[Frame]:
        [path] = self.home.glob(f".local/state/clisup-worker/projects/*/{self.session}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines() if line]

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        with os.fdopen(os.dup(self.process.stdout.fileno()), "rb") as stdout:
            for line in stdout:
                self.lines.append(line)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        with os.fdopen(os.dup(self.process.stderr.fileno()), "rb") as stderr:
            for line in stderr:
                self.stderr += line


@contextmanager
def worker(api: FakeApi | str, home: Path, *args: str, **more: Any) -> Iterator[Worker]:
    """A process that is gone afterwards."""
    started = Worker(api, home, *args, **more)
    try:
        yield started
    finally:
        started.kill()
        noise = [word for word in (b"Traceback", b"Warning", b"never awaited") if word in started.stderr]
        for pipe in (started.process.stdin, started.process.stdout, started.process.stderr):
            assert pipe is not None
            pipe.close()
    assert not noise, started.stderr
