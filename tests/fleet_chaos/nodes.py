"""Three nodes of the engine on this machine, with the configuration and the keys that `clisup fleet init` makes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["LOOPBACK", "Nodes", "found_fleet"]

LOOPBACK = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""Addresses of nodes on one machine: all have the same port."""
PATIENCE_S = 120.0
SERVER = Path(sys.executable).with_name("nats-server")


def clisup(*words: str) -> str:
    """Run a command of clisup. Raises `AssertionError` with its words if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "clisup", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"clisup {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def found_fleet(directory: Path, hosts: Sequence[str], port: int, members: dict[str, Sequence[str]]) -> dict[str, Path]:
    """Found a fleet. Return the files of its members by name, with the admin's. `members` have their roles."""
    where = ("--dir", str(directory))
    clisup("fleet", "init", "--name", "chaos", "--nodes", ",".join(hosts), "--port", str(port), *where)
    for name, roles in members.items():
        clisup("fleet", "member", "add", name, *(word for role in roles for word in ("--role", role)), *where)
    return {name: directory / f"{name}.member" for name in ("admin", *members)}


class Nodes:
    """Processes of the nodes."""

    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        self._directories = [directory / host for host in hosts]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * len(hosts)

    @property
    def pids(self) -> list[int]:
        """Return the pids of the running nodes."""
        return [process.pid for process in self.processes if process is not None]

    def start(self) -> None:
        """Start the nodes that do not run."""
        for number, directory in enumerate(self._directories):
            if self.processes[number] is None:
                with (directory / "log").open("ab") as log:
                    self.processes[number] = subprocess.Popen(
                        [SERVER, "-c", "nats.conf"], cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )

    def kill(self, number: int) -> None:
        """kill -9 of one node."""
        if (process := self.processes[number]) is not None:
            process.kill()
            process.wait()
            self.processes[number] = None

    def close(self) -> None:
        """End all nodes."""
        for number in range(len(self.processes)):
            self.kill(number)
