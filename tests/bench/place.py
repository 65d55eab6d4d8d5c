"""A daemon to be measured, in a directory of its own: the fake CLI as its claude, sinks as its clients, and its costs."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.frames import Mix
from tests.bench.native_programs import build

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness

__all__ = ["Gate", "Place", "Sinks", "cpu_of", "memory_of", "place"]

PATIENCE_S = 300.0
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process so far, to 10 ms (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def memory_of(pid: int) -> dict[str, int]:
    """KiB: `Rss`, `Pss`, `Private_Dirty` and the rest of smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}


class Gate:
    """Fake CLIs wait at it until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        self.shut()

    def shut(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)


class Sinks:
    """Clients at C speed, that have said that they follow."""

    def __init__(self, program: Path, socket: str, what: str, turns: int, count: int) -> None:
        argv = [str(program), socket, what, str(turns)]
        self.processes = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(count)]
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "a sink does not follow"

    def results(self) -> list[dict[str, Any]]:
        """What each has seen, once all its turns are over."""
        timer = threading.Timer(PATIENCE_S, self.kill)
        timer.start()
        try:
            return [json.loads(process.communicate()[0]) for process in self.processes]
        finally:
            timer.cancel()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


class Place:
    """One daemon, cold-started as a user's is; `close` proves that it left nothing behind."""

    def __init__(self, programs: Path, **tables: Any) -> None:
        self.fake, self.sink = build("fakecli", programs), build("sink", programs)
        limits = {"spool_bytes": 64 * 1024**3}
        raw = tables.pop("raw", "")
        claude = f'[backends.claude]\ncommand = ["{self.fake}"]\nmode = "one-shot"\n'
        rest = "".join(f"{name} = {value}\n" for name, value in limits.items())
        raw += f"\n{claude}[backends.claude.limits]\n{rest}"
        daemon = {"max_sessions": 20_000, "max_running": 2_000, **tables.pop("daemon", {})}
        self.daemon = Harness(cold=True, raw=raw, daemon=daemon, **tables)
        self.daemon.start()
        self.gate = Gate(self.daemon.root / "gate")

    @property
    def pid(self) -> int:
        return self.daemon.pid

    def session(self) -> str:
        """A new session of the fake CLI."""
        return str(self.daemon.call("session/new", backend="claude", cwd=str(self.daemon.cwd))["session_id"])

    def prompt(self, session: str, mode: str, mix: Mix, count: int, rate: float = 1.0) -> None:
        """Have it say `count` lines once the gate is open."""
        text = f"bench {mode} {self.gate.path} {mix.path} {count} {rate}"
        self.daemon.call("session/prompt", session_id=session, prompt=text)

    def all_running(self, count: int) -> None:
        """Wait until so many fake CLIs stand at the gate."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            sessions = self.daemon.call("daemon/status")["sessions"]
            if (
                sum(row.get("phase") not in (None, "startup") and row["state"] == "running" for row in sessions)
                >= count
            ):
                return
            time.sleep(0.05)
        raise AssertionError(f"{count} turns do not run: {self.daemon.log.read_text()[-2000:]}")

    def close(self) -> None:
        self.daemon.close()


@contextmanager
def place(programs: Path, **tables: Any) -> Iterator[Place]:
    """One for the length of a measurement."""
    made = Place(programs, **tables)
    try:
        yield made
    except BaseException:
        made.daemon.faults_expected = True
        made.gate.open()
        raise
    finally:
        made.close()
