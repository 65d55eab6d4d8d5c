"""How much later a client sees an event than it would have on the CLI's own pipe, and what one huge line does to the others."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.bare import spoken
from tests.bench.figures import Figure, figure
from tests.bench.flow import typed_alone
from tests.bench.native_programs import build
from tests.bench.others import beside_heavy_requests
from tests.bench.place import PATIENCE_S, Gate, Sinks, bounded, end, prompt_of
from tests.bench.setting import Setting
from tests.bench.stolen import Stolen
from tests.bench.targets import TARGETS
from tests.bench.throughput import saturation

__all__ = ["measure"]

PART = "latency"
RATE = 2_000
"""Lines a second in all."""
SESSIONS = (1, 100)
ROUNDS, SECONDS = 7, 1.5
"""Short ones and more of them: a second in which the hypervisor takes nothing is found sooner than three in a row."""
ROUNDS_AT_A_TENTH, ROUNDS_BESIDE_HUGE = 3, 5
OTHERS, OTHERS_RATE, HUGE_RATE = 10, 100, 4
FLOOD_LINES = 40_000
ALONE_LINES, PAUSE_S = 1_000, 0.001
REFERENCE = Path(__file__).parent / "reference"
Relay = subprocess.Popen[bytes]
FROM_STDIN = ("-", "-", "0")
"""What a sink is told that reads what it is given, up to its end."""


class Ages(NamedTuple):
    """ms from the write of a line to its arrival, and the share of the processors that the hypervisor took meanwhile."""

    p50: float
    p99: float
    stolen: float = 0.0


class Load(NamedTuple):
    """So many sessions that say so many lines a second in all."""

    sessions: int
    rate: float

    def __str__(self) -> str:
        return f"{self.sessions} {'session' if self.sessions == 1 else 'sessions'}"

    def pace(self, setting: Setting) -> tuple[int, float]:
        """Lines for each session, and how many of them a second."""
        rate = self.rate / self.sessions
        return max(int(rate * setting.of(SECONDS, 0.0, 0.5)), 20), rate


def measure(setting: Setting) -> list[Figure]:
    """At a rate that the target names, and at a tenth of what this machine's daemon can carry."""
    figures = []
    for sessions in setting.of(SESSIONS, (), (2,)):
        full = saturation(setting, sessions, setting.of(FLOOD_LINES, 0, 1_000))
        figures += _at_target(setting, Load(sessions, RATE), full)
        figures += _at_a_tenth(setting, Load(sessions, full / 10))
    return [*figures, *_alone(setting), *_beside_huge(setting), *beside_heavy_requests(setting, PART)]


def _alone(setting: Setting) -> list[Figure]:
    """What it does to a process that it has slept before each line: others have had its processor's caches meanwhile."""
    lines, rounds = setting.of(ALONE_LINES, 0, 100), range(setting.of(ROUNDS, 0, 1))
    at_once, after = zip(
        *[[typed_alone(setting.mix, lines, pause) for pause in (0, PAUSE_S)] for _ in rounds], strict=True
    )
    name = "CPU of one line's typed events and journal line, in a process by itself"
    return [
        figure(
            PART,
            f"{name}, after {PAUSE_S * 1000:g} ms asleep",
            "us",
            after,
            reference="without a pause",
            against=at_once,
        )
    ]


def _at_target(setting: Setting, load: Load, full: float) -> list[Figure]:
    """Directly, over a relay in C, over two bare hops in Python, through clisup; what these add to the first."""
    ages = _rounds(setting, load, ("direct", "relay", "hops", "clisup"), setting.of(ROUNDS, 0, 1))
    ours, relay, hops = _over(ages, "clisup"), _over(ages, "relay"), _over(ages, "hops")
    direct, stolen = ages["direct"], [age.stolen for age in ages["direct"]]
    note = f"{load.rate / full * 100:.2g} % of what it can carry"
    return [
        *_added(str(load), ours, relay, note=note, sessions=load.sessions),
        figure(PART, f"two bare hops in Python, p50, {load}", "us", [age.p50 * 1000 for age in hops],
               reference="a relay in C, one hop", against=[max(age.p50 * 1000, 0.1) for age in relay],
               stolen=[age.stolen for age in hops]),
        figure(PART, f"two bare hops in Python, p99, {load}", "ms", [age.p99 for age in hops],
               stolen=[age.stolen for age in hops]),
        figure(PART, f"on the CLI's own pipe, p50, {load}", "us", [age.p50 * 1000 for age in direct], stolen=stolen),
        figure(PART, f"on the CLI's own pipe, p99, {load}", "ms", [age.p99 for age in direct], stolen=stolen),
    ]  # fmt: skip


def _at_a_tenth(setting: Setting, load: Load) -> list[Figure]:
    ages = _rounds(setting, load, ("direct", "relay", "clisup"), setting.of(ROUNDS_AT_A_TENTH, 0, 1))
    note = f"{load.rate:,.0f} lines a second"
    return _added(f"{load} at 10 % load", _over(ages, "clisup"), _over(ages, "relay"), note=note)


def _added(name: str, ours: list[Ages], relay: list[Ages], *, note: str, sessions: int = 0) -> list[Figure]:
    """What clisup adds to the direct way. So many `sessions` have a target."""
    reference, stolen = "a relay in C, one hop", [age.stolen for age in ours]
    return [
        figure(PART, f"added, p50, {name}", "us", [age.p50 * 1000 for age in ours], reference=reference,
               against=[max(age.p50 * 1000, 0.1) for age in relay], note=note, target=TARGETS.get(f"p50 of {sessions}"),
               stolen=stolen),
        figure(PART, f"added, p99, {name}", "ms", [age.p99 for age in ours], reference=reference,
               against=[max(age.p99, 0.0001) for age in relay], note=note, target=TARGETS.get(f"p99 of {sessions}"),
               stolen=stolen),
    ]  # fmt: skip


def _rounds(setting: Setting, load: Load, names: Sequence[str], rounds: int) -> dict[str, list[Ages]]:
    runs: dict[str, Callable[[Setting, Load], Ages]] = {
        "direct": _direct, "relay": lambda *of: _relayed(*of, _relay), "hops": lambda *of: _relayed(*of, _two_hops),
        "clisup": _supervised,
    }  # fmt: skip
    ages: dict[str, list[Ages]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            ages[name].append(setting.undisturbed(runs[name], setting, load))
        words = ", ".join(
            f"{name} p50 {each[-1].p50 * 1000:.0f} p99 {each[-1].p99 * 1000:.0f} us" for name, each in ages.items()
        )
        setting.say(f"latency, {load}, {load.rate:,.0f} lines/s, {number + 1}/{rounds}: {words}")
    return ages


def _over(ages: dict[str, list[Ages]], name: str) -> list[Ages]:
    """What is added to the direct way."""
    return [
        Ages(found.p50 - bare.p50, found.p99 - bare.p99, found.stolen)
        for found, bare in zip(ages[name], ages["direct"], strict=True)
    ]


def _direct(setting: Setting, load: Load) -> Ages:
    """All fakes write to the one pipe that the client reads."""
    gate, (count, rate) = Gate(setting.scratch / "direct.gate"), load.pace(setting)
    fake, sink = build("fakecli", setting.programs), build("sink", setting.programs)
    try:
        prompt = prompt_of("pace", gate, setting.stamped, count, rate)
        with spoken(fake, prompt, load.sessions, into_one=True) as pipes, Sinks(sink, [FROM_STDIN], pipes[0]) as sinks:
            return _ages(gate, sinks)
    finally:
        gate.close()


def _relayed(setting: Setting, load: Load, relay: Callable[[Setting, list[int], socket.socket], Relay]) -> Ages:
    """A pipe for each fake, a relay, a socket to the client."""
    gate, (count, rate) = Gate(setting.scratch / "relay.gate"), load.pace(setting)
    fake, sink = build("fakecli", setting.programs), build("sink", setting.programs)
    ours, theirs = socket.socketpair()
    relays: list[Relay] = []
    try:
        prompt = prompt_of("pace", gate, setting.stamped, count, rate)
        with spoken(fake, prompt, load.sessions) as pipes, Sinks(sink, [FROM_STDIN], theirs) as sinks:
            relays.append(relay(setting, pipes, ours))
            ours.close()
            theirs.close()
            with bounded(relays):
                return _ages(gate, sinks)
    finally:
        end(relays)
        ours.close()
        theirs.close()
        gate.close()


def _relay(setting: Setting, pipes: list[int], stdout: socket.socket) -> Relay:
    argv = [str(build("relay", setting.programs)), *map(str, pipes)]
    return subprocess.Popen(argv, stdout=stdout, pass_fds=pipes)


def _two_hops(setting: Setting, pipes: list[int], stdout: socket.socket) -> Relay:
    (spools := setting.scratch / "hops").mkdir(exist_ok=True)
    (ready := spools / "ready").unlink(missing_ok=True)
    argv = [sys.executable, "-I", str(REFERENCE / "two_hops.py"), str(spools), *map(str, pipes)]
    hops, until = subprocess.Popen(argv, stdout=stdout, pass_fds=pipes), time.monotonic() + PATIENCE_S
    while not ready.exists():
        assert hops.poll() is None and time.monotonic() < until, "the two hops do not start"
        time.sleep(0.01)
    return hops


def _supervised(setting: Setting, load: Load) -> Ages:
    count, rate = load.pace(setting)
    with setting.place() as at, at.follow(load.sessions, 1) as sinks:
        for session in [at.session() for _ in range(load.sessions)]:
            at.prompt(session, "pace", setting.stamped, count, rate)
        at.all_running(load.sessions)
        return _ages(at.gate, sinks)


def _ages(gate: Gate, sinks: Sinks) -> Ages:
    """Over all clients, from the opening of the gate on: each has as many lines as the next."""
    stolen, _ = Stolen(), gate.open()
    quantiles, share = [result["ages"] for result in sinks.results()], stolen.share()
    assert all(quantiles), "no stamped line came"
    merged = sorted(age for ages in quantiles for age in ages)
    return Ages(merged[len(merged) // 2] / 1e6, merged[int(len(merged) * 0.99)] / 1e6, share)


def _beside_huge(setting: Setting) -> list[Figure]:
    """Ten sessions with a client each, while an eleventh prints lines of 5 MB that nobody follows, and without it."""
    ages: dict[bool, list[Ages]] = {False: [], True: []}
    for number in range(setting.of(ROUNDS_BESIDE_HUGE, 0, 1)):
        for huge in ages:
            ages[huge].append(found := setting.undisturbed(_ten, setting, huge))
            beside = "beside lines of 5 MB" if huge else "alone"
            setting.say(f"latency, ten sessions {beside}, {number + 1}: p50 {found.p50:.2f} p99 {found.p99:.2f} ms")
    without, beside = [age.p99 for age in ages[False]], [age.p99 for age in ages[True]]
    return [
        figure(PART, f"p99 of {OTHERS} sessions beside lines of 5 MB", "ms", beside, reference="without these",
               against=without, target=TARGETS["p99 beside huge lines"], stolen=[age.stolen for age in ages[True]]),
    ]  # fmt: skip


def _ten(setting: Setting, huge: bool) -> Ages:
    seconds = setting.of(SECONDS, 0.0, 0.5)
    with setting.place() as at:
        sessions = [at.session() for _ in range(OTHERS)]
        with at.follow_each(sessions) as sinks:
            for session in sessions:
                at.prompt(session, "pace", setting.deltas, int(OTHERS_RATE * seconds), OTHERS_RATE)
            if huge:
                at.prompt(at.session(), "pace", setting.huge, max(int(HUGE_RATE * seconds), 1), HUGE_RATE)
            at.all_running(OTHERS + huge)
            return _ages(at.gate, sinks)
