"""A daemon with demo sessions of every kind that `clisup top` tells apart: what its picture shows, and its tests look at."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness, until

__all__ = ["ASKS", "Scene"]

ASKS = '@ask Bash {"command": "git push --force-with-lease origin main", "description": "Publish the rebased branch"}'


class Scene:
    """Sessions that answer, use a tool, ask, wait in a queue and rest; `go` lets the ones that wait go on."""

    def __init__(self) -> None:
        self.daemon = Harness(timeouts={"model_idle": 180, "tool_idle": 1800})
        self.daemon.start()
        self.go = self.daemon.root / "go"

    def play(self) -> None:
        (self.daemon.cwd / ".git").mkdir()
        (self.daemon.cwd / ".git" / "HEAD").write_text("ref: refs/heads/parser\n")
        self.open("failing", "@error authentication", title="Nightly dependency update")
        self.open("resting", "How many tests does this project have?")
        self.open("writing", f"@stream 600 64 0.05\n@wait-file {self.go}", title="Write the release notes")
        self.open("compiling", "I build it first.\n@bash sleep 600", title="Fix the build on ARM")
        self.open("thinking", f"@sleep 0.2\n@wait-file {self.go}", title="Why is the login slow?")
        self.open(
            "publishing",
            f"The branch is rebased; I publish it.\n{ASKS}\nPublished.",
            title="Rebase the parser branch and publish it",
            mode="live",
            permission_mode="default",
        )
        queued = self.open(
            "reviewing",
            f'@tool Read {{"file_path": "src/app.py"}}\nLooks good so far.\n@wait-file {self.go}',
            title="Review the parser",
        )
        self.prompt(queued, "And now the tests, please.")
        until(lambda: self.daemon.call("approval/list")["approvals"], "nobody asks")
        until(lambda: self.status()["totals"]["turns"]["completed"] >= 1, "nothing is done")
        until(lambda: self.status()["totals"]["turns"]["failed"] >= 1, "nothing has failed")

    def talk(self) -> None:
        """A session of several turns with a compaction, and a daemon that is killed and started again."""
        talking = self.open("talking", "What does the parser do?\n@sleep 2", title="Explain the parser", mode="live")
        until(lambda: self.named("talking")["last_turn"], "no answer")
        for number in range(1, 10):
            tool = f'@tool Grep {{"pattern": "token {number}"}} => {"x" * 40 * number}'
            text = f"And {'the next part, ' * 12 * number}please.\n{tool}\n@sleep 0.7"
            self.daemon.call("session/prompt", session_id=talking, prompt=text, wait=True)
            if number == 6:
                self.daemon.call("session/compact", session_id=talking, wait=True)
            if number == 3:
                self.daemon.kill()
                self.daemon.start()

    def open(self, job: str, prompt: str, **params: Any) -> str:
        """A session that runs `prompt`: its id."""
        new = self.daemon.call("session/new", backend="demo", cwd=str(self.daemon.cwd), labels={"job": job}, **params)
        self.prompt(new["session_id"], prompt)
        return str(new["session_id"])

    def prompt(self, session_id: str, prompt: str) -> None:
        self.daemon.call("session/prompt", session_id=session_id, prompt=prompt)

    def status(self) -> dict[str, Any]:
        return dict(self.daemon.call("daemon/status"))

    def named(self, job: str) -> dict[str, Any]:
        """The summary of the session with this job."""
        return next(s for s in self.status()["sessions"] if s["labels"].get("job") == job)

    def close(self) -> None:
        self.go.touch()
        self.daemon.close()
