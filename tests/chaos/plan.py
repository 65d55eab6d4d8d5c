"""Where the next kill strikes: at a failpoint, or at a random moment. Pure but for its random numbers."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clisup.host.failpoints import FAILPOINTS

__all__ = ["NOT_MET_HERE", "Plan", "Strike", "placed"]

NOT_MET_HERE = {
    "cursor.": "no client here stores a cursor",
    "fork.": "nobody forks a session here",
    "retention.": "nothing here grows old",
    "restart.": "nobody asks for a restart in place",
    "notify.": "the configuration has no [[notify]] table: tests/daemon/test_notify.py strikes there",
}
"""Failpoints that this workload does not come to, by prefix: a life that waits for one would wait in vain."""
TROUBLE = {"journal.mend": "journal.before=EIO@4", "segment.mend": "segment.after=EIO@1"}
"""What has to fail first, so that a failpoint of the repair is met: the daemon dies before anybody hears of the error."""
REACH = {"journal.": 100.0, "send.": 200.0, "keeper.push": 12.0, "keeper.ack": 12.0, "file.": 8.0, "sync.": 4.0}
"""About how often a failpoint is met in one life; learnt from here on. What is not named: once."""
AT_FAILPOINTS = 0.65  # of all kills
IN_START = 0.25  # of the others: counted from the launch, they fall into the start and the adoption
START_S, LIFE_S = (0.0, 0.3), (0.02, 0.6)


def placed() -> list[str]:
    """The failpoints of the catalogue that stand in the code and are met here."""
    package = Path(__file__).parents[2] / "clisup"
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    there = set(re.findall(r'\bfailpoint\("([a-z.]+)"\)', code))
    return [name for name in FAILPOINTS if name in there and not name.startswith(tuple(NOT_MET_HERE))]


@dataclass(frozen=True)
class Strike:
    """One kill: at the n-th time that a failpoint is met, or so many seconds after the launch or the start."""

    failpoint: str | None = None
    nth: int = 0
    delay_s: float = 0.0
    from_launch: bool = False

    @property
    def spec(self) -> str:
        """For CLISUP_FAILPOINTS."""
        if self.failpoint is None:
            return ""
        first = TROUBLE.get(self.failpoint)
        return (f"{first}," if first else "") + f"{self.failpoint}=kill@{self.nth}"


class Plan:
    """Chooses strikes, and learns from what became of them. `struck` counts the hits of each failpoint."""

    def __init__(self, names: Iterable[str], chance: random.Random) -> None:
        self._chance = chance
        self.struck = dict.fromkeys(names, 0)
        self.missed = dict.fromkeys(self.struck, 0)
        self._reach = {name: next((n for p, n in REACH.items() if name.startswith(p)), 1.0) for name in self.struck}

    def next(self) -> Strike:
        """The failpoint that was struck the least comes first."""
        chance = self._chance
        if self.struck and chance.random() < AT_FAILPOINTS:
            name = min(self.struck, key=lambda name: (self.struck[name] + self.missed[name] / 2, chance.random()))
            if name in TROUBLE:
                return Strike(name, nth=1)
            # Small numbers are as likely as large ones: the first journal write is another than the hundredth.
            return Strike(name, nth=round(math.exp(chance.uniform(0, math.log(self._reach[name])))))
        from_launch = chance.random() < IN_START
        return Strike(delay_s=chance.uniform(*(START_S if from_launch else LIFE_S)), from_launch=from_launch)

    def result(self, strike: Strike, *, hit: bool) -> None:
        """What became of it."""
        if (name := strike.failpoint) is None:
            return
        (self.struck if hit else self.missed)[name] += 1
        self._reach[name] = (
            min(self._reach[name] * 1.2, 1000.0) if hit else max(1.0, min(self._reach[name], strike.nth) / 2)
        )

    @property
    def unstruck(self) -> list[str]:
        return [name for name, hits in self.struck.items() if not hits]
