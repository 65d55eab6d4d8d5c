"""`make soak`: thousands of short turns on one daemon, and what they leave behind. Exit 1 if a promise of fault 19 is broken.

    python -m tests.soak.run

`TURNS` (10000) in the environment. Eight clients work side by side; between the pieces they pause until nothing runs, so that
each sample sees the same daemon: eight open sessions, no turn, no follower.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.sample import HEADER, Sample, sample
from tests.soak.turns import Worker

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness

WORKERS = 8
WARM_UP = 1000  # or a tenth of a short run: until then modules load, caches fill, and each kind of turn was met often
PIECES = 10
RSS_PROMISE_MB = 5.0
SETTLE_S = 120.0


@dataclass
class Trouble:
    """What else must not be: processes left behind (`left`), wrong outcomes and faults in the daemon's log (`wrong`)."""

    left: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    turns = int(os.environ.get("TURNS", "10000"))
    return soak(turns, min(WARM_UP, turns // PIECES), RSS_PROMISE_MB)


def soak(turns: int, warm_up: int, rss_promise_mb: float) -> int:
    """Play them, print the figures; 1 if a promise is broken."""
    began = time.monotonic()
    daemon = Harness()
    workers = [Worker(daemon, number) for number in range(WORKERS)]
    print(f"{turns} turns by {WORKERS} clients; growth counts from turn {warm_up} on\n{HEADER}", flush=True)
    try:
        daemon.start()
        marks = [warm_up + (turns - warm_up) * piece // PIECES for piece in range(PIECES + 1)]
        samples: list[Sample] = []
        for before, mark in zip([0, *marks], marks, strict=False):
            _play(workers, mark - before)
            _settle(daemon)
            samples.append(sample(daemon.pid, mark, time.monotonic() - began))
            print(samples[-1].row(), flush=True)
        counted = daemon.call("daemon/status")["totals"]["turns"]
    finally:
        trouble = _close(daemon)
    trouble.wrong += [line for worker in workers for line in worker.wrong]
    print(f"{sum(worker.opened for worker in workers)} sessions opened, all but {WORKERS} closed; outcomes {counted}")
    return verdict(samples, counted, trouble, rss_promise_mb)


def _play(workers: list[Worker], turns: int) -> None:
    lock, left = threading.Lock(), [turns]

    def claim() -> bool:
        with lock:
            left[0] -= 1
            return left[0] >= 0

    threads = [worker.thread(claim) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _settle(daemon: Harness) -> None:
    """Until no keeper is left and the files of the clients before are closed. What stays is for the sample to show."""
    end = time.monotonic() + SETTLE_S
    fds: list[int] = []
    while time.monotonic() < end:
        now = sample(daemon.pid, 0, 0)
        fds.append(now.fds)
        if (now.keepers, now.zombies, len(set(fds[-5:]))) == (0, 0, 1) and len(fds) >= 5:
            return
        time.sleep(0.1)


def _close(daemon: Harness) -> Trouble:
    """Stop the daemon."""
    trouble = Trouble(left=list(daemon.leftovers().values()))
    try:
        daemon.close()
    except AssertionError as error:
        trouble.wrong.append(str(error)[:2000])
    return trouble


def verdict(samples: list[Sample], counted: dict[str, int], trouble: Trouble, rss_promise_mb: float) -> int:
    """Print what is promised and what came; 1 if a promise is broken."""
    first, last = samples[0], samples[-1]
    fds, rss, left = last.fds - first.fds, last.rss_mb - first.rss_mb, last.keepers + len(trouble.left)
    wrong = [*trouble.wrong, *trouble.left]
    if sum(counted.values()) != last.turns:
        wrong.append(f"the daemon counts {counted}")
    for line in wrong[:20]:
        print("!", line)
    print(f"turns {last.turns} zombies {last.zombies} fd_growth {fds} rss_growth_mb {rss:.2f} leftovers {left} "
          f"seconds {last.seconds:.0f}")  # fmt: skip
    return int(bool(wrong) or left > 0 or last.zombies > 0 or fds > 0 or rss >= rss_promise_mb)


if __name__ == "__main__":
    sys.exit(main())
