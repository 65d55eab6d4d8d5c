"""From `session/prompt` to the first instruction of the CLI, beside a bare subprocess; `clisup status` beside `python -c pass`."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures import Figure, figure
from tests.bench.place import PATIENCE_S, Gate, Place, bounded, end, prompt_of
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure"]

PART = "start"
STAMP = re.compile(rb"@STAMP-(\d{16})")
AT_ONCE = 10
OPEN = 10
"""Sessions that `clisup status` has to show."""
REST_S = 0.15
"""Between two starts: as a user's, each finds a daemon that is done with the one before."""


def measure(setting: Setting) -> list[Figure]:
    with setting.place() as at:
        figures = _warm(setting, at) + _commands(setting, at)
    return figures if setting.size == "short" else [*_cold(setting), *figures]


def _cold(setting: Setting) -> list[Figure]:
    """The first turn of a daemon."""
    ours, bare = [], []
    for number in range(setting.of(5, 0, 1)):
        with setting.place() as at:
            ours.append(_prompted(setting, at, 1))
            bare.append(_bare(setting, at, 1))
        setting.say(f"start, cold, {number + 1}: {ours[-1]:.1f} ms, bare {bare[-1]:.1f} ms")
    return [_more("session/prompt to main() of the CLI, first of a daemon", ours, bare, "cold start")]


def _warm(setting: Setting, at: Place) -> list[Figure]:
    """One after the other, then ten at once: until the last of them runs."""
    figures = []
    names = {1: "session/prompt to main() of the CLI", AT_ONCE: f"{AT_ONCE} at once, to main() of the last"}
    for count in setting.of((1, AT_ONCE), (1,), (1, 3)):
        ours, bare = [], []
        _prompted(setting, at, 1)
        for _ in range(setting.of(20, 9, 2)):
            time.sleep(REST_S)
            ours.append(_prompted(setting, at, count))
            bare.append(_bare(setting, at, count))
        setting.say(f"start, {count} at once: {statistics.median(ours):.1f} ms, bare {statistics.median(bare):.1f} ms")
        name = names.get(count, f"{count} at once, to main() of the last")
        figures.append(_best(name, ours, bare))
        if setting.size != "short":
            figures.append(_more(name, ours, bare, "warm start" if count == 1 else "ten at once"))
    return figures


def _best(name: str, ours: Sequence[float], bare: Sequence[float]) -> Figure:
    """What a busy machine moves least, and the short form can therefore compare."""
    return figure(
        PART, f"{name}, the best of all", "ms", [min(ours)], reference="a bare subprocess", against=[min(bare)]
    )


def _more(name: str, ours: Sequence[float], bare: Sequence[float], target: str) -> Figure:
    """The value is what it takes more than the bare subprocess, as the target is; the ratio is of the whole."""
    whole = figure(PART, name, "ms", ours, against=bare)
    more = figure(PART, name, "ms more", [a - b for a, b in zip(ours, bare, strict=True)], target=TARGETS[target])
    return Figure(**{**more.as_dict(), "reference": "a bare subprocess", "reference_value": whole.reference_value,
                     "ratio": whole.ratio, "low": whole.low, "high": whole.high})  # fmt: skip


def _prompted(setting: Setting, at: Place, count: int) -> float:
    """ms from the first request to the last main(); the turns are over when it returns."""
    sessions = [at.session() for _ in range(count)]
    at.gate.open()
    prompt = prompt_of("start", at.gate, setting.deltas, 1)
    with at.daemon.wire() as wire:
        for session in sessions:
            wire.call("session/subscribe", session_id=session)
        begun = time.monotonic_ns()
        for session in sessions:
            wire.post("session/prompt", session_id=session, prompt=prompt)
        stamps: list[int] = []
        ended, until = 0, time.monotonic() + PATIENCE_S
        while ended < count:
            line = wire.line()
            stamps += [int(found) for found in STAMP.findall(line) if int(found)]
            ended += b'"turn_completed"' in line[:400]
            assert time.monotonic() < until, "the turns do not end"
    return (max(stamps) - begun) / 1e6


def _bare(setting: Setting, at: Place, count: int) -> float:
    """The same fakes by subprocess.Popen, with the same prompt."""
    gate = Gate(setting.scratch / "start.gate")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        prompt = prompt_of("start", gate, setting.deltas, 1).encode()
        gate.open()
        begun = time.monotonic_ns()
        for _ in range(count):
            pipes = subprocess.PIPE
            process = subprocess.Popen([str(at.fake)], stdin=pipes, stdout=pipes, stderr=pipes, start_new_session=True)
            processes.append(process)
            assert process.stdin is not None
            process.stdin.write(prompt)
            process.stdin.close()
            process.stdin = None
        with bounded(processes):
            said = b"".join(process.communicate()[0] for process in processes)
    finally:
        end(processes)
        gate.close()
    return (max(int(found) for found in STAMP.findall(said)) - begun) / 1e6


def _commands(setting: Setting, at: Place) -> list[Figure]:
    """Interleaved, with ten open sessions; none writes bytecode that the next would find."""
    for _ in range(OPEN):
        at.session()
    clisup = str(Path(sys.executable).with_name("clisup"))
    forms = setting.of(("", "--json", "-q"), ("",), ("",))
    runs: dict[str, list[str]] = {"pass": [sys.executable, "-c", "pass"]}
    runs |= {f"clisup status {form}".strip(): [clisup, "status", *form.split()] for form in forms}
    environment = {**at.daemon.env, "CLISUP_SOCKET": at.daemon.socket, "CLISUP_STATE_DIR": str(at.daemon.state)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(setting.of(31, 12, 2)):
        for name, argv in runs.items():
            took = _timed(argv, environment)
            if number:  # the first fills caches
                times[name].append(took)
    setting.say("start, " + ", ".join(f"{name}: {statistics.median(each):.1f} ms" for name, each in times.items()))
    return [
        figure(PART, name, "ms", each, reference="python -c pass", against=times["pass"], target=TARGETS["status"])
        for name, each in times.items()
        if name != "pass"
    ]


def _timed(argv: Sequence[str], environment: dict[str, str]) -> float:
    began = time.monotonic()
    process = subprocess.run(
        argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE_S
    )
    assert process.returncode == 0, process.stderr.decode()[-500:]
    return (time.monotonic() - began) * 1000
