"""A box: a daemon with the fake CLI, and the fleet's agent beside it, in a home of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from toml_text import toml
from zygote import Forked, Zygote

from tests.fakecli import COMMAND
from tests.fleet_chaos.process import end_all

__all__ = ["Box"]

PATIENCE_S = 120.0
PROGRAMS = str(Path(__file__).parents[2])
CONFIG: dict[str, dict[str, Any]] = {
    "daemon": {"max_running": 64, "log_level": "warning"},
    "backends.demo": {"command": list(COMMAND)},
    "backends.demo.timeouts": {"startup": 60, "model_idle": 120, "tool_idle": 120, "term_grace": 1},
    "fleet": {"accept": ["*"]},
}
Process = Forked | subprocess.Popen[bytes]


class Box:
    """One member. `inside` is a command line that starts the agent elsewhere, such as in a network of its own."""

    def __init__(self, root: Path, name: str, member_file: Path, zygote: Zygote, inside: Sequence[str] = ()) -> None:
        self.name, self.root = name, root / name
        self.home, self.cwd = self.root / "home", self.root / "work"
        config = self.home / ".config" / "clisup"
        for directory in (self.cwd, config, self.root / "run"):
            directory.mkdir(parents=True, mode=0o700)
        (config / "config.toml").write_text("\n".join(f"[{key}]\n{toml(table)}" for key, table in CONFIG.items()))
        joined = config / "fleet-member.json"
        joined.write_bytes(member_file.read_bytes())
        joined.chmod(0o600)
        self.env = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
        }
        self.socket = str(self.root / "run" / "clisup" / "clisup.sock")
        self.state = self.home / ".local" / "state" / "clisup"
        self._zygote, self._inside = zygote, list(inside)
        self.daemon: Process | None = None
        self.agent: Process | None = None

    def member_socket(self, other: str) -> str:
        """Return the socket on which the agent offers another member."""
        return str(self.root / "run" / "clisup" / "fleet" / f"{other}.sock")

    def start(self) -> None:
        """Start what does not run."""
        if self.daemon is None:
            self.daemon = self._zygote.fork(["serve", "--log-format", "json"], self.env, self.root / "daemon.log")
        if self.agent is None:
            self.agent = self._start_agent()

    def _start_agent(self) -> Process:
        log = self.root / "agent.log"
        if not self._inside:
            return self._zygote.fork(["fleet", "agent"], self.env, log)
        argv = [*self._inside, sys.executable, "-P", "-m", "clisup", "fleet", "agent"]
        with log.open("ab") as out:
            return subprocess.Popen(
                argv,
                env=self.env,
                cwd=PROGRAMS,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def kill_agent(self) -> None:
        """kill -9 of the agent."""
        self.agent = _killed(self.agent)

    def kill_daemon(self) -> None:
        """kill -9 of the daemon. Its turns go on."""
        self.daemon = _killed(self.daemon)

    def lose_power(self) -> None:
        """kill -9 of all that runs here: daemon, agent, keepers, CLIs."""
        self.kill_daemon()
        self.kill_agent()
        end_all(str(self.home))

    def freeze(self, frozen: bool) -> None:
        """Stop the agent's process, or let it go on: a box that the engine does not hear."""
        if self.agent is not None:
            self.agent.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def faults(self) -> list[str]:
        """Return the lines of the logs that tell of a fault inside the daemon or the agent."""
        found = []
        for log in (self.root / "daemon.log", self.root / "agent.log"):
            with suppress(OSError):
                lines = log.read_text(errors="replace").splitlines()
                bad = [line for line in lines if "inside the" in line]
                bad += [_cause(lines[at + 1 :]) for at, line in enumerate(lines) if "Traceback" in line]
                found += [f"{self.name} {log.name}: {line[:300]}" for line in bad]
        return found

    def close(self) -> None:
        """End everything."""
        self.lose_power()


def _cause(lines: Sequence[str]) -> str:
    """Return the exception of a traceback, which is its first line without an indent."""
    return next((line for line in lines if line and not line.startswith(" ")), "a traceback without an end")


def _killed(process: Process | None) -> None:
    if process is not None:
        process.kill()
        process.wait(PATIENCE_S)


def wait_for(path: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a file is there. Raises `AssertionError` if it does not come."""
    end = time.monotonic() + patience_s
    while not os.path.exists(path):
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.05)
