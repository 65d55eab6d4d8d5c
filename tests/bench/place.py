"""A daemon to be measured, in a directory of its own: the fake CLI as its claude, sinks as its clients, and its costs."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.bench.frames import Mix
from tests.bench.native_programs import build

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness, children_of

__all__ = ["Gate", "Place", "Sinks", "bounded", "children_of", "cpu_of", "end", "memory_of", "place", "prompt_of"]

PATIENCE_S = 120.0
"""For everything that is waited for."""
QUIET, QUIET_LOOK_S = 0.02, 0.25
"""A daemon that needs no more than this share of a processor, over such a time, has nothing to do."""


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process so far, all its threads (the clock of clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_of(pid: int) -> dict[str, int]:
    """KiB: `Rss`, `Pss`, `Private_Dirty` and the rest of smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}


class Gate:
    """Fake CLIs wait at it until it is opened. `spent` is what they and their parents needed since it was shut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        self._accounts = Path(f"{path}.cpu")
        self.shut()

    def shut(self) -> None:
        self._accounts.write_text("")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> int:
        """The moment, in ns of the monotonic clock, which the C programs use, too."""
        now = time.monotonic_ns()
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return now

    def spent(self) -> tuple[float, float]:
        """Seconds of processor time, summed: the fake CLIs', and their parents' (the keepers', under clisup)."""
        rows = [line.split() for line in self._accounts.read_text().splitlines()]
        own, parents = (sum(int(row[column]) for row in rows) / 1e9 for column in (0, 1))
        return own, parents

    def close(self) -> None:
        self._file.close()


def prompt_of(mode: str, gate: Gate, mix: Mix, count: int, rate: float = 1.0) -> str:
    """The word on which a fake CLI speaks."""
    return f"bench {mode} {gate.path} {mix.path} {count} {rate}"


@contextmanager
def bounded(processes: Iterable[subprocess.Popen[bytes]], seconds: float = PATIENCE_S) -> Iterator[None]:
    """Whatever is awaited inside ends: the processes are killed when the time is up."""
    processes = list(processes)

    def kill() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill what still runs, reap all, close their pipes."""
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


class Sinks:
    """Clients at C speed. A context manager: none outlives it."""

    def __init__(self, program: Path, arguments: Sequence[Sequence[str]], stdin: Any = None) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for words in arguments:
                self.processes.append(subprocess.Popen([str(program), *words], stdin=stdin, stdout=subprocess.PIPE))
            with bounded(self.processes):
                for process in self.processes:
                    assert process.stdout is not None
                    assert process.stdout.readline() == b"ready\n", "a sink does not follow"
        except BaseException:
            end(self.processes)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        end(self.processes)

    def results(self) -> list[dict[str, Any]]:
        """What each has seen, once all its turns are over."""
        with bounded(self.processes):
            said = [process.communicate()[0] for process in self.processes]
        assert all(said), f"a sink did not see the end of its turns within {PATIENCE_S:g} s"
        return [json.loads(text) for text in said]


class Place:
    """One daemon, cold-started as a user's is; `close` proves that it left nothing behind."""

    def __init__(self, programs: Path, *, cold: bool = True, python: str = sys.executable, **tables: Any) -> None:
        self.fake, self.sink = build("fakecli", programs), build("sink", programs)
        limits = {"spool_bytes": 64 * 1024**3}
        raw = tables.pop("raw", "")
        claude = f'[backends.claude]\ncommand = ["{self.fake}"]\nmode = "one-shot"\n'
        rest = "".join(f"{name} = {value}\n" for name, value in limits.items())
        raw += f"\n{claude}[backends.claude.limits]\n{rest}"
        daemon = {"max_sessions": 20_000, "max_running": 2_000, **tables.pop("daemon", {})}
        self.daemon = Harness(cold=cold, raw=raw, daemon=daemon, **tables)
        self.daemon.python = python
        self.daemon.start()
        self.gate = Gate(self.daemon.root / "gate")
        self.programs = programs

    @property
    def pid(self) -> int:
        return self.daemon.pid

    def session(self) -> str:
        """A new session of the fake CLI."""
        return str(self.daemon.call("session/new", backend="claude", cwd=str(self.daemon.cwd))["session_id"])

    def prompt(self, session: str, mode: str, mix: Mix, count: int, rate: float = 1.0) -> None:
        """Have it say `count` lines once the gate is open."""
        self.daemon.call("session/prompt", session_id=session, prompt=prompt_of(mode, self.gate, mix, count, rate))

    def follow(self, turns: int, clients: int) -> Sinks:
        """So many clients that follow all sessions until so many turns have completed."""
        return Sinks(self.sink, [(self.daemon.socket, "*", str(turns))] * clients)

    def follow_each(self, sessions: Sequence[str]) -> Sinks:
        """A client for each session, until one turn of it has completed."""
        return Sinks(self.sink, [(self.daemon.socket, session, "1") for session in sessions])

    def keepers(self) -> list[int]:
        """The parents of the fake CLIs that run."""
        return [parent for pid in _running(self.fake.resolve()) if (parent := _parent(pid)) is not None]

    def all_running(self, count: int) -> None:
        """Wait until so many fake CLIs stand at the gate."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            asked = time.monotonic()
            sessions = self.daemon.call("daemon/status")["sessions"]
            if (
                sum(row["state"] == "running" and row.get("phase") not in (None, "startup") for row in sessions)
                >= count
            ):
                return
            time.sleep(0.05 + 4 * (time.monotonic() - asked))  # to be asked costs the daemon, too
        raise AssertionError(f"{count} turns do not run: {self.daemon.log.read_text()[-2000:]}")

    def standing(self, count: int) -> None:
        """Wait, without asking the daemon, whose cost is being measured, until so many fakes live and it has nothing left to do."""
        until = time.monotonic() + PATIENCE_S
        program, before = self.fake.resolve(), -1.0
        while len(_running(program)) != count or cpu_of(self.pid) - before > QUIET * QUIET_LOOK_S:
            assert time.monotonic() < until, f"{count} turns do not stand: {self.daemon.log.read_text()[-2000:]}"
            before = cpu_of(self.pid)
            time.sleep(QUIET_LOOK_S)

    def close(self) -> None:
        self.gate.close()
        self.daemon.close()


def _running(program: Path) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _is(int(name), program)]


def _is(pid: int, program: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")) == program
    except OSError:
        return False


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return None


@contextmanager
def place(programs: Path, *, cold: bool = True, **tables: Any) -> Iterator[Place]:
    """One for the length of a measurement."""
    made = Place(programs, cold=cold, **tables)
    try:
        yield made
    except BaseException:
        made.daemon.faults_expected = True
        with suppress(ValueError, OSError):
            made.gate.open()
        raise
    finally:
        made.close()
