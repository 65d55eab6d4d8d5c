"""Counts that no neighbour on the machine moves: the daemon's Python calls, syncs and system calls for a line, a turn, a
start and an adoption. A count that has grown by more than a tenth fails the short form.
"""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.figures import Figure, figure
from tests.bench.frames import Mix
from tests.bench.place import PATIENCE_S, Place, place
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure"]

PART = "counts"
COUNTER = Path(__file__).parent / "counter" / "sitecustomize.py"
ROOT = Path(__file__).parents[2]
FEW, MANY, RATE = 20, 60, 20.0
"""Lines of two paced turns, and lines a second: each line comes alone. A line's count is the difference of the two turns'."""
ADOPTED = 20
_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", re.MULTILINE)
SYSTEM = ("system calls", "futex calls")


class Count(NamedTuple):
    """Python calls and syncs of a daemon since its start."""

    calls: int = 0
    syncs: int = 0


def measure(setting: Setting) -> list[Figure]:
    with _counted(setting) as (at, read):
        start = read()
        figures = [_figure("an empty start", "calls", [start.calls])]
        figures += _lines_and_turns(setting, at, read)
        figures += _traced(setting, at)
        figures.append(_adoption(setting, at, read, start.calls))
    return figures


@contextmanager
def _counted(setting: Setting) -> Iterator[tuple[Place, Callable[..., Count]]]:
    """A daemon that counts, at rest, and what gives its counts when it is at rest again. A restart begins at 0."""
    home = setting.scratch / "counted"
    counts = home / "counts"
    venv.create(home)  # the daemon executes itself anew with a clean environment: no variable reaches it
    site = next(home.glob("lib/python3*/site-packages"))
    (site / "borrowed.pth").write_text("\n".join(path for path in (str(ROOT), *sys.path) if path))
    shutil.copy(COUNTER, site)
    counts.write_bytes(bytes(16))

    def read(sessions: int = 0) -> Count:
        at.standing(sessions)
        return Count(*struct.unpack("<QQ", counts.read_bytes()))

    with place(setting.programs, python=str(home / "bin" / "python")) as at:
        yield at, read


def _lines_and_turns(setting: Setting, at: Place, read: Callable[..., Count]) -> list[Figure]:
    rounds = setting.of(5, 3, 1)
    lines, firsts, turns = list[float](), list[Count](), list[Count]()
    for number in range(rounds + 1):
        before, session = read(), at.session()
        _turn(at, "flood", setting.deltas, 1, session)
        opened = read()
        _turn(at, "flood", setting.deltas, 1, session)
        after = read()
        few = _paced(setting, at, read, FEW)
        line = (_paced(setting, at, read, MANY) - few) / (MANY - FEW)
        setting.say(f"counts {number}: a line {line:.1f} calls, a turn {after.calls - opened.calls} calls")
        if number:  # the first turns fill caches
            lines.append(line)
            firsts.append(Count(opened.calls - before.calls, opened.syncs - before.syncs))
            turns.append(Count(after.calls - opened.calls, after.syncs - opened.syncs))
    first = "a session and its first turn"
    return [
        _figure("a lonely line", "calls", lines),
        _figure("a turn", "calls", [each.calls for each in turns]),
        _figure("a turn", "syncs", [each.syncs for each in turns]),
        _figure(first, "calls", [each.calls for each in firsts]),
        _figure(first, "syncs", [each.syncs for each in firsts]),
    ]


def _paced(setting: Setting, at: Place, read: Callable[..., Count], count: int) -> float:
    """Return the calls of a turn whose lines come one by one."""
    before = read()
    _turn(at, "pace", setting.deltas, count)
    return read().calls - before.calls


def _turn(at: Place, mode: str, mix: Mix, count: int, session: str | None = None) -> None:
    """Play a turn, in a session of its own if none is named."""
    session = session or at.session()
    with at.follow(1, 1) as sinks:
        at.prompt(session, mode, mix, count, RATE)
        at.gate.open()
        sinks.results()
    at.gate.shut()


def _traced(setting: Setting, at: Place) -> list[Figure]:
    """System calls of a line and of a turn, by strace, where it may attach."""
    if shutil.which("strace") is None:
        setting.say("system calls are not counted: strace is not installed")
        return []
    lines, turns, session = list[Mapping[str, float]](), list[Mapping[str, float]](), at.session()
    _turn(at, "flood", setting.deltas, 1, session)
    for _ in range(setting.of(5, 3, 1)):
        turn = _strace(setting, at, lambda: _turn(at, "flood", setting.deltas, 1, session))
        few = _strace(setting, at, lambda: _turn(at, "pace", setting.deltas, FEW))
        many = _strace(setting, at, lambda: _turn(at, "pace", setting.deltas, MANY))
        if not turn:
            setting.say("system calls are not counted: strace may not attach to a process here")
            return []
        turns.append(turn)
        lines.append({name: (many[name] - few[name]) / (MANY - FEW) for name in SYSTEM})
    return [
        _figure(what, name, [each[name] for each in found])
        for what, found in (("a lonely line", lines), ("a turn", turns))
        for name in SYSTEM
    ]


def _strace(setting: Setting, at: Place, play: Callable[[], None]) -> dict[str, float]:
    """Return the numbers of system calls while something is played, or nothing where strace may not attach."""
    at.standing(0)
    told = setting.scratch / "strace"
    argv = ["strace", "-f", "-c", "-p", str(at.pid), "-o", str(told)]
    tracer = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    try:
        if "attached" not in tracer.stderr.readline():
            return {}
        play()
        at.standing(0)
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=PATIENCE_S)
    found = {name: int(number) for number, name in _ROW.findall(told.read_text())}
    total = found.pop("total", sum(found.values()))
    return {SYSTEM[0]: total, SYSTEM[1]: found.get("futex", 0)}


def _adoption(setting: Setting, at: Place, read: Callable[..., Count], empty: int) -> Figure:
    """Calls of a start for each turn that it adopts, beyond those of an empty start."""
    count = setting.of(ADOPTED, ADOPTED, 2)
    sessions = [at.session() for _ in range(count)]
    for session in sessions:
        at.prompt(session, "flood", setting.deltas, 1)
    at.all_running(count)
    at.daemon.kill()
    at.daemon.start()
    calls = read(count).calls
    with at.follow(count, 1) as sinks:
        at.gate.open()
        assert sinks.results()[0]["turns"] == count
    return _figure("an adoption, beyond an empty start", "calls", [(calls - empty) / count])


def _figure(name: str, unit: str, values: list[float]) -> Figure:
    return figure(PART, f"{name}: {unit}", unit, values, target=TARGETS.get(f"{name}: {unit}"))
