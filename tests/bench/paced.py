"""Many sessions whose lines come one by one, as those of real CLIs do: the processor time that they take, and how late a
line arrives, for ever more sessions, until the clients wait.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.bench.figures import Figure, figure
from tests.bench.place import cpu_of
from tests.bench.setting import Setting
from tests.bench.stolen import Stolen
from tests.bench.targets import TARGETS

__all__ = ["RATE", "measure"]

PART = "paced"
RATE = 20.0
"""Lines a second of each session."""
SESSIONS = (10, 25, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 800, 1_000)
AIMED = 100
"""Sessions of the figure with a target."""
MOST_MS = 50.0
"""A line of which one in a hundred is later than this arrives late."""
ROUNDS, SECONDS = 3, 4.0


class Paced(NamedTuple):
    """Cores of the daemon and of the keepers, quantiles of the lines' ages in ms, and the share that the hypervisor took."""

    daemon: float
    keepers: float
    p50: float
    p99: float
    stolen: float

    @property
    def cores(self) -> float:
        return self.daemon + self.keepers

    def __str__(self) -> str:
        return f"daemon {self.daemon:.3f}, keepers {self.keepers:.3f} cores, p50 {self.p50:.2f}, p99 {self.p99:.2f} ms"


def measure(setting: Setting) -> list[Figure]:
    figures, most = list[Figure](), 0
    for count in setting.of(SESSIONS, (20,), (2,)):
        rounds = list[Paced]()
        for _ in range(setting.of(ROUNDS, 1, 1)):
            rounds.append(setting.undisturbed(paced, setting, count))
            setting.say(f"paced, {count} sessions: {rounds[-1]}")
        figures += _rows(count, rounds)
        if sorted(each.p99 for each in rounds)[len(rounds) // 2] > MOST_MS:
            break
        most = count
    name = f"lines a second in all, with a p99 of at most {MOST_MS:g} ms"
    return [*figures, figure(PART, name, "lines/s", [most * RATE], target=TARGETS["paced lines"])]


def _rows(count: int, rounds: list[Paced]) -> list[Figure]:
    crowd, stolen = f"{count:,} sessions with {RATE:g} lines/s and a client each", [each.stolen for each in rounds]
    target = TARGETS["paced cores"] if count == AIMED else None
    return [
        figure(PART, f"{crowd}: daemon and keepers", "cores", [each.cores for each in rounds], target=target, stolen=stolen),
        figure(PART, f"{crowd}: daemon", "cores", [each.daemon for each in rounds], stolen=stolen),
        figure(PART, f"{crowd}: age of a line, p50", "ms", [each.p50 for each in rounds], stolen=stolen),
        figure(PART, f"{crowd}: age of a line, p99", "ms", [each.p99 for each in rounds], stolen=stolen),
    ]  # fmt: skip


def paced(setting: Setting, count: int) -> Paced:
    """`count` sessions of one daemon, each with a client of its own."""
    seconds = setting.of(SECONDS, 1.5, 0.5)
    with setting.place() as at:
        sessions = [at.session() for _ in range(count)]
        with at.follow_each(sessions) as sinks:
            for session in sessions:
                at.prompt(session, "pace", setting.stamped, int(RATE * seconds), RATE)
            at.all_running(count)
            before, stolen = cpu_of(at.pid), Stolen()
            at.gate.open()
            time.sleep(seconds)
            daemon, share = cpu_of(at.pid) - before, stolen.share()
            ages = sorted(age / 1e6 for result in sinks.results() for age in result["ages"])
        keepers = at.gate.spent()[1]
    assert ages, "no stamped line came"
    return Paced(daemon / seconds, keepers / seconds, ages[len(ages) // 2], ages[int(len(ages) * 0.99)], share)
