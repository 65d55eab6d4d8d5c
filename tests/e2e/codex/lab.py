"""The real codex behind a daemon, in front of a fake Responses API that plays a scenario."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clisup.backends.codex.protocol import GREETING
from tests.e2e.codex.fake_api import FAKE_KEY, FakeResponsesAPI
from tests.e2e.codex.provider import KEY_NAME, codex_binary, codex_launcher, provider
from tests.e2e.codex.scenarios import MODEL, Scenario
from tests.e2e.lab import Lab


class CodexLab(Lab):
    """`backend` is the kind: `codex` or `codex-exec`. The command is npm's launcher, which clisup looks through."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        kind: str = "codex",
        command: Path | None = None,
        args: tuple[str, ...] = (),
        retries: int = 1,
        config: str = "",
    ) -> None:
        super().__init__()
        self.backend = kind
        self.api = FakeResponsesAPI(scenario.script).__enter__()
        if scenario.refused:
            self.api.close()
        words = [*provider(self.api.url, retries=retries), *args]
        env = {KEY_NAME: FAKE_KEY} if scenario.key else {}
        self.configure(
            command=[str(command or codex_launcher())], env=env, extra=f"args = {json.dumps(words)}\n{config}"
        )

    @property
    def codex_home(self) -> Path:
        return self.home / ".codex"

    def close_fakes(self) -> None:
        self.api.close()

    @contextmanager
    def foreign(self, thread: str) -> Iterator[int]:
        """A codex that clisup did not start, with this thread open: its pid."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), KEY_NAME: FAKE_KEY}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        argv = [str(codex_binary()), "app-server", *provider(self.api.url)]
        with subprocess.Popen(argv, env=env, cwd=self.cwd, **pipes) as process:
            assert process.stdin is not None and process.stdout is not None
            resume = {"id": 2, "method": "thread/resume", "params": {"threadId": thread}}
            try:
                process.stdin.write(GREETING.encode() + json.dumps(resume).encode() + b"\n")
                process.stdin.flush()
                frames = (json.loads(line) for line in process.stdout)
                answer = next(frame for frame in frames if frame.get("id") == 2)
                assert answer["result"]["thread"]["id"] == thread
                yield process.pid
            finally:
                process.kill()

    def open(self, **params: Any) -> str:
        """A new session that may write in its directory."""
        return super().open(**{"model": MODEL, "permission_mode": "workspace-write", **params})


def running_with(text: str) -> list[int]:
    """The pids of processes with this command line: a tool may have lost the session's marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "cmdline").read_bytes().replace(b"\0", b" ").strip() == text.encode():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
