"""From `session/prompt` to the first instruction of the CLI, beside a bare subprocess; of that, the keeper's own start; and
`clisup status` beside `python -c pass`.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.figures import Figure, figure
from tests.bench.native_programs import build
from tests.bench.place import PATIENCE_S, Gate, Place, bounded, end, prompt_of
from tests.bench.setting import Setting
from tests.bench.stolen import Stolen
from tests.bench.targets import TARGETS
from tests.keeper.measure import STAMP as DATE
from tests.keeper.measure import Start as Starter
from tests.keeper.measure import forked, until_exec

__all__ = ["measure"]

PART = "start"
STAMP = re.compile(rb"@STAMP-(\d{16})")
AT_ONCE = 10
OPEN, MANY = 10, 200
"""Sessions that `clisup status` has to show."""
REST_S = 0.15
"""Between two starts: as a user's, each finds a daemon that is done with the one before."""


class Start(NamedTuple):
    """ms until the last one runs, and the share of the processors that the hypervisor took meanwhile."""

    ms: float
    stolen: float


def measure(setting: Setting) -> list[Figure]:
    with setting.place() as at:
        figures = _warm(setting, at)
    figures += _commands(setting)
    return figures if setting.size == "short" else [*_cold(setting), *figures, *_keepers(setting)]


def _cold(setting: Setting) -> list[Figure]:
    """The first turn of a daemon."""
    ours, bare = list[Start](), list[Start]()
    for number in range(setting.of(7, 0, 1)):
        ours.append(setting.undisturbed(_first, setting))
        bare.append(setting.undisturbed(_bare, setting, 1))
        setting.say(f"start, cold, {number + 1}: {ours[-1].ms:.1f} ms, bare {bare[-1].ms:.1f} ms")
    return [_more("session/prompt to main() of the CLI, first of a daemon", ours, bare, "cold start")]


def _warm(setting: Setting, at: Place) -> list[Figure]:
    """One after the other, then ten at once: until the last of them runs."""
    figures = []
    names = {1: "session/prompt to main() of the CLI", AT_ONCE: f"{AT_ONCE} at once, to main() of the last"}
    for count in setting.of((1, AT_ONCE), (1,), (1, 3)):
        _prompted(setting, at, 1)
        ours, bare = list[Start](), list[Start]()
        for _ in range(setting.of(20, 9, 2)):
            ours.append(setting.undisturbed(_rested, setting, at, count))
            bare.append(setting.undisturbed(_bare, setting, count))
        setting.say(f"start, {count} at once: {_median(ours):.1f} ms, bare {_median(bare):.1f} ms")
        name = names.get(count, f"{count} at once, to main() of the last")
        figures.append(_best(name, ours, bare))
        if setting.size != "short":
            figures.append(_more(name, ours, bare, "warm start" if count == 1 else "ten at once"))
    return figures


def _keepers(setting: Setting) -> list[Figure]:
    """A keeper alone, as the daemon starts it, beside a shell that does no more than to wait for the same program."""
    figures = []
    with forked() as start:
        for count in setting.of((1, AT_ONCE), (), (1, 3)):
            ours, bare = list[Start](), list[Start]()
            for _ in range(setting.of(20, 0, 2)):
                time.sleep(REST_S)
                ours.append(setting.undisturbed(_kept, setting, start, count))
                bare.append(setting.undisturbed(_wrapped, count))
            setting.say(f"start, {count} keepers at once: {_median(ours):.1f} ms, sh {_median(bare):.1f} ms")
            name = (
                f"{count} keepers at once, to main() of the last CLI" if count > 1 else "a keeper, to main() of its CLI"
            )
            figures.append(figure(PART, name, "ms", [each.ms for each in ours], reference="a bare sh wrapper",
                                  against=[each.ms for each in bare],
                                  stolen=[each.stolen for each in ours]))  # fmt: skip
    return figures


def _kept(setting: Setting, start: Starter, count: int) -> Start:
    root = Path(tempfile.mkdtemp(dir=setting.scratch))  # it stays: its keepers still write their records
    stolen = Stolen()
    return Start(until_exec(start, root, count), stolen.share())


def _wrapped(count: int) -> Start:
    """The program says when it began; so it does under a keeper, and its own start is in both."""
    stolen, begun = Stolen(), time.time()
    argv = ["/bin/sh", "-c", '"$0" "$@"; exit $?', *DATE]
    shells = [subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) for _ in range(count)]
    try:
        with bounded(shells):
            said = [float(shell.communicate()[0]) for shell in shells]
    finally:
        end(shells)
    return Start((max(said) - begun) * 1000, stolen.share())


def _median(starts: Sequence[Start]) -> float:
    return statistics.median(each.ms for each in starts)


def _best(name: str, ours: Sequence[Start], bare: Sequence[Start]) -> Figure:
    """What a busy machine moves least, and the short form can therefore compare."""
    return figure(
        PART, f"{name}, the best of all", "ms", [min(ours).ms], reference="a bare subprocess", against=[min(bare).ms]
    )


def _more(name: str, ours: Sequence[Start], bare: Sequence[Start], target: str | None) -> Figure:
    """The value is what it takes more than the bare subprocess, as the target is; the ratio is of the whole."""
    whole = figure(PART, name, "ms", [each.ms for each in ours], against=[each.ms for each in bare])
    more = figure(PART, name, "ms more", [a.ms - b.ms for a, b in zip(ours, bare, strict=True)],
                  target=TARGETS[target] if target else None, stolen=[each.stolen for each in ours])  # fmt: skip
    return Figure(**{**more.as_dict(), "reference": "a bare subprocess", "reference_value": whole.reference_value,
                     "ratio": whole.ratio, "low": whole.low, "high": whole.high})  # fmt: skip


def _first(setting: Setting) -> Start:
    with setting.place() as at:
        return _prompted(setting, at, 1)


def _rested(setting: Setting, at: Place, count: int) -> Start:
    time.sleep(REST_S)
    return _prompted(setting, at, count)


def _prompted(setting: Setting, at: Place, count: int) -> Start:
    """From the first request to the last main(); the turns are over when it returns."""
    sessions = [at.session() for _ in range(count)]
    at.gate.open()
    prompt = prompt_of("start", at.gate, setting.deltas, 1)
    with at.daemon.wire() as wire:
        for session in sessions:
            wire.call("session/subscribe", session_id=session)
        stolen, begun = Stolen(), time.monotonic_ns()
        for session in sessions:
            wire.post("session/prompt", session_id=session, prompt=prompt)
        stamps: list[int] = []
        ended, until = 0, time.monotonic() + PATIENCE_S
        share: float | None = None
        while ended < count:
            line = wire.line()
            stamps += [int(found) for found in STAMP.findall(line) if int(found)]
            if share is None and len(stamps) == count:
                share = stolen.share()
            ended += b'"turn_completed"' in line[:400]
            assert time.monotonic() < until, "the turns do not end"
    assert share is not None, f"{len(stamps)} of {count} CLIs said when they began"
    return Start((max(stamps) - begun) / 1e6, share)


def _bare(setting: Setting, count: int) -> Start:
    """The same fakes by subprocess.Popen, with the same prompt."""
    gate, fake = Gate(setting.scratch / "start.gate"), str(build("fakecli", setting.programs))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        prompt = prompt_of("start", gate, setting.deltas, 1).encode()
        gate.open()
        stolen, begun = Stolen(), time.monotonic_ns()
        for _ in range(count):
            pipes = subprocess.PIPE
            process = subprocess.Popen([fake], stdin=pipes, stdout=pipes, stderr=pipes, start_new_session=True)
            processes.append(process)
            assert process.stdin is not None
            process.stdin.write(prompt)
            process.stdin.close()
            process.stdin = None
        with bounded(processes):
            said = b"".join(process.communicate()[0] for process in processes)
        share = stolen.share()
    finally:
        end(processes)
        gate.close()
    return Start((max(int(found) for found in STAMP.findall(said)) - begun) / 1e6, share)


def _commands(setting: Setting) -> list[Figure]:
    """Of a daemon of its own, with ten open sessions, then with many."""
    with setting.place() as at:
        figures = _status(setting, at, OPEN, setting.of(("", "--json", "-q"), ("",), ("",)))
        return figures if setting.size == "short" else figures + _status(setting, at, setting.of(MANY, 0, 12), ("",))


def _status(setting: Setting, at: Place, sessions: int, forms: Sequence[str]) -> list[Figure]:
    """Interleaved; none writes bytecode that the next would find."""
    for _ in range(sessions - len(at.daemon.call("daemon/status")["sessions"])):
        at.session()
    clisup = str(Path(sys.executable).with_name("clisup"))
    runs: dict[str, list[str]] = {"pass": [sys.executable, "-c", "pass"]}
    runs |= {f"clisup status {form}".strip(): [clisup, "status", *form.split()] for form in forms}
    environment = {**at.daemon.env, "CLISUP_SOCKET": at.daemon.socket, "CLISUP_STATE_DIR": str(at.daemon.state)}
    times: dict[str, list[Start]] = {name: [] for name in runs}
    for number in range(setting.of(31, 12, 2)):
        for name, argv in runs.items():
            took = setting.undisturbed(_timed, argv, environment)
            if number:  # the first fills caches
                times[name].append(took)
    setting.say(
        f"start, {sessions} sessions, " + ", ".join(f"{name}: {_median(each):.1f} ms" for name, each in times.items())
    )
    which, target = ("", TARGETS["status"]) if sessions == OPEN else (f", {sessions} open sessions", None)
    bare = [took.ms for took in times.pop("pass")]
    return [
        figure(PART, name + which, "ms", [took.ms for took in each], reference="python -c pass", against=bare, target=target,
               stolen=[took.stolen for took in each])
        for name, each in times.items()
    ]  # fmt: skip


def _timed(argv: Sequence[str], environment: dict[str, str]) -> Start:
    """Of a whole process."""
    stolen, began = Stolen(), time.monotonic()
    process = subprocess.run(
        argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE_S
    )
    assert process.returncode == 0, process.stderr.decode()[-500:]
    return Start((time.monotonic() - began) * 1000, stolen.share())
