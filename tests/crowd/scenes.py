"""A scene: who offends, and what the well-behaved client beside them measures. One daemon plays all of them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from harness import Harness  # noqa: E402 - the tests' harness is no package
from session_probe import SessionProbe  # noqa: E402

__all__ = ["SCENES", "Crowd", "Result", "Scene", "ending", "quantiles"]

HISTORY = "@stream 20000 500"
FLOODING = "@stream 1000000 500 0.002"
STREAMING = "@stream 1000000 40 0.02"
CONNECTIONS = 1500  # the scene of all has 1,200; the default is 512
SETTLE_S = 3.0  # for the offenders to be in full swing
LOOK_S = 0.05
FLOOD = b'x\n{}\n\n{"type":"system","subtype":"status","status":"s"}\n'
FLOOD_BYTES = 32 * 1024 * 1024  # takes the daemon longer than a scene is long
UNFAIR = """
import os, sys, clisup.policy.fair_queue as fair_queue
fair_queue.FairQueue.pass_by = lambda self, account, units, now: True
execve, self = os.execve, sys.orig_argv[sys.orig_argv.index("-c") + 1]
os.execve = lambda path, argv, env: execve(path, [path, "-P", "-c", self, *argv[4:]], env)  # it starts itself anew
sys.argv[0] = "clisup"
from clisup.cli.main import main
main()
"""


class Scene(NamedTuple):
    """`offenders`: how many clients of which kind. `clis`: how many CLIs print short lines as fast as they can."""

    name: str
    offenders: dict[str, int]
    clis: int = 0


SCENES = (
    Scene("quiet", {}),
    Scene("never-readers", {"never-read": 100}),
    Scene("half frames", {"half-frame": 500}),
    Scene("flood of pings", {"ping": 200}),
    Scene("flood of garbage", {"garbage": 200}),
    Scene("flood of pages", {"pages": 200}),
    Scene("all together", {"never-read": 100, "half-frame": 500, "ping": 200, "garbage": 200, "pages": 200}),
    # The last ones: what the CLIs have said is read for a long time after they were ended.
    Scene("4 flooding CLIs", {}, clis=4),
    Scene("20 flooding CLIs", {}, clis=20),
)


@dataclass
class Result:
    """What one scene gave. Times in ms, of the well-behaved client."""

    scene: str
    pings_ms: list[float] = field(repr=False)
    lags_ms: list[float] = field(repr=False)
    unanswered: int
    hello_ms: float  # connecting to the first answer
    events: int
    expected: int
    lost: int
    doubled_or_late: int
    rss_mb: float = 0.0
    cpu: float = 0.0  # of one core, the daemon
    served: dict[str, float] = field(default_factory=dict)  # answers a second, by kind of offender
    refused: int = 0

    def figures(self) -> dict[str, Any]:
        """Without the samples, for JSON."""
        row = {name: value for name, value in asdict(self).items() if not name.endswith("_ms")}
        return row | {"ping_ms": quantiles(self.pings_ms), "lag_ms": quantiles(self.lags_ms)}


def quantiles(times: list[float]) -> dict[str, float]:
    """Median, p99 and worst."""
    ordered = sorted(times) or [float("inf")]
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(len(ordered) * at))], 1) for name, at in places.items()}


class UnfairHarness(Harness):
    """The control: a daemon without fair share."""

    def argv(self) -> list[str]:
        return [sys.executable, "-c", UNFAIR, *super().argv()[3:]]


class Crowd:
    """The daemon, and what its scenes need: a history, a session that floods and one that streams."""

    def __init__(self, *, unfair: bool = False) -> None:
        kind = UnfairHarness if unfair else Harness
        limits = {"max_connections": CONNECTIONS, "frame_deadline_s": 600, "fsync": "none", "max_running": 32}
        self.daemon = kind(daemon=limits)

    def __enter__(self) -> Self:
        soft, hard = 4 * CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard)))
        self.history, self.flooding, self.streaming = (self.daemon.new() for _ in range(3))
        self.history.ask(HISTORY)
        self.flooding.prompt(FLOODING)
        self.streaming.prompt(STREAMING)
        for session in (self.flooding, self.streaming):
            session.await_event("content_delta")
        return self

    def __exit__(self, *_exc: object) -> None:
        self.daemon.close()

    def play(self, scene: Scene, seconds: float) -> Result:
        """The offenders first; when they are in full swing, the well-behaved client comes."""
        offenders = {kind: self._offend(kind, count) for kind, count in scene.offenders.items()}
        for _ in range(scene.clis):
            self._flood()
        try:
            time.sleep(SETTLE_S if offenders or scene.clis else 0)
            result = self._measure(scene.name, seconds)
        finally:
            for process in offenders.values():
                assert process.stdin is not None
                process.stdin.close()
                process.stdin = None  # `communicate` would flush the closed file
        for kind, process in offenders.items():
            figures = ending(process)
            result.served[kind] = round(figures["served"] / figures["seconds"], 1)
            result.refused += figures["refused"]
        return result

    def _measure(self, name: str, seconds: float) -> Result:
        good = _start("good", self.daemon.socket, self.streaming.id, str(seconds))
        sizes, cpu, began = [0.0], self._cpu_s(), time.monotonic()
        figures = ending(good, lambda: sizes.append(self._rss_mb()))
        used = (self._cpu_s() - cpu) / (time.monotonic() - began)
        return Result(name, **figures, rss_mb=round(max(sizes), 1), cpu=round(used, 2))

    def _offend(self, kind: str, count: int) -> subprocess.Popen[bytes]:
        session: SessionProbe = self.flooding if kind == "never-read" else self.history
        return _start("offenders", kind, self.daemon.socket, str(count), session.id)

    def _flood(self) -> None:
        """One more CLI that prints short lines."""
        path = self.daemon.root / "flood"
        if not path.exists():
            path.write_bytes(FLOOD * (FLOOD_BYTES // len(FLOOD)))
        self.daemon.new().prompt(f"@bytes {path}")

    def _rss_mb(self) -> float:
        return int(Path(f"/proc/{self.daemon.pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


def _start(module: str, *args: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", f"tests.crowd.{module}", *args]
    return subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ending(process: subprocess.Popen[bytes], look: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Return the figures that the process prints, and call `look` until then.

    The output is read meanwhile: a process whose figures are longer than a pipe holds would never end.
    """
    with process:
        while True:
            try:
                output = process.communicate(timeout=LOOK_S)[0]
                break
            except subprocess.TimeoutExpired:
                look()
    assert process.returncode == 0, f"{process.args} failed"
    return dict(json.loads(output))
