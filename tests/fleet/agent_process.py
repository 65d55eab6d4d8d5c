"""An agent as a process of its own, beside a real daemon and a real engine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clisup.fleet.agent.records import BoxBeat, read_beat
from clisup.fleet.engine import Bucket
from clisup.fleet.member import member_file, write_member
from clisup.fleet.nats_engine import connect_member
from tests.fleet.copied import Difference, difference
from tests.fleet.nats_server import FoundedNode

PATIENCE_S = 120.0


def until(what: Callable[[], Any], why: Callable[[], str] = lambda: "") -> Any:
    """What `what` returns, as soon as that is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, why()
        time.sleep(0.1)
    return found


class AgentProcess:
    """`clisup fleet agent` for one daemon (a harness). The box has joined the fleet of `node`."""

    def __init__(self, daemon: Any, node: FoundedNode, name: str = "box") -> None:
        self.name, self.node, self.state = name, node, Path(daemon.state)
        home = Path(daemon.root) / f"agent-{name}"
        home.mkdir(exist_ok=True)
        self.log = home / "log"
        self.env = {
            **daemon.env,
            "XDG_CONFIG_HOME": str(home),
            "CLISUP_SOCKET": str(daemon.socket),
            "CLISUP_STATE_DIR": str(daemon.state),
            "CLISUP_CONFIG": str(daemon.config),
        }
        write_member(member_file(self.env), node.member(name))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, without waiting for anything."""
        argv = [sys.executable, "-m", "clisup", "fleet", "agent", "--log-format", "json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self.process

    def kill(self) -> None:
        """kill -9, as in an accident."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        """End it by SIGTERM and give its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def words(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-3000:]

    def difference(self) -> Difference:
        """The journals beside their copy."""

        async def look() -> Difference:
            async with connect_member(self.node.member("admin")) as engine:
                return await difference(engine, self.name, self.state)

        return asyncio.run(look())

    def whole(self) -> Difference:
        """Wait until nothing is missing in the copy."""
        return until(lambda: (found := self.difference()) and not found.lost and found, self.words)  # type: ignore[no-any-return]

    def beat(self) -> BoxBeat | None:
        """The last beat."""

        async def look() -> BoxBeat | None:
            async with connect_member(self.node.member("admin")) as engine:
                entry = await Bucket(engine, "BOXES").get(self.name)
                return entry and read_beat(entry.value)

        return asyncio.run(look())

    def cpu_s(self) -> float:
        """Seconds of processor time so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
