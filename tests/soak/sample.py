"""The daemon's own figures, from /proc: nothing is asked of the daemon, so nothing is changed by asking."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import children_of, name_of

__all__ = ["Sample", "sample"]

MIB = 1024 * 1024


class Sample(NamedTuple):
    """At one moment. `keepers` are children that live, `zombies` those that nobody has reaped; the zygote's count as the daemon's."""

    turns: int
    seconds: float
    rss_mb: float
    fds: int
    threads: int
    zombies: int
    keepers: int

    def row(self) -> str:
        return (f"{self.turns:8} {self.seconds:8.0f} {self.rss_mb:8.2f} {self.fds:5} {self.threads:8} "
                f"{self.zombies:8} {self.keepers:8}")  # fmt: skip


HEADER = f"{'turns':>8} {'seconds':>8} {'rss MB':>8} {'fds':>5} {'threads':>8} {'zombies':>8} {'keepers':>8}"


def sample(pid: int, turns: int, seconds: float) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    own = children_of(pid)
    zygotes = [child for child in own if name_of(child) == "clisup-zygote"]
    forked = [child for zygote in zygotes for child in children_of(zygote)]
    children = [_state(child) for child in own + forked if child not in zygotes]
    return Sample(
        turns=turns,
        seconds=seconds,
        rss_mb=int(status["VmRSS"].split()[0]) * 1024 / MIB,
        fds=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(status["Threads"]),
        zombies=children.count("Z"),
        keepers=sum(state not in ("Z", "") for state in children),
    )


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
