"""What the hypervisor gave to others while a round was measured. A round that it disturbed is put aside and measured anew.

On a machine that is shared, a processor that has work to do may wait for its turn: up to half of the time was seen. Nothing that is
measured by the clock means anything then. Whether a round counts is decided by this alone, never by what it found.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

__all__ = ["Round", "Stolen", "Undisturbed"]

MOST = 0.01
"""Of the processors: more, and the round is measured anew. One tick in a start of 50 ms is more."""
TRIES = 8
"""Of these the least disturbed one counts, where all were."""
PATIENCE_S = 240.0
"""For rounds that were put aside, of each part."""
_USER, _STOLEN = 1, 8  # columns of the first line of /proc/stat (proc(5)); what comes after is in others already


class Round(Protocol):
    """What one round gives."""

    @property
    def stolen(self) -> float:
        """The share of the processors that was stolen meanwhile."""


R = TypeVar("R", bound=Round)


class Stolen:
    """From now on."""

    def __init__(self) -> None:
        self._before = _ticks()

    def share(self) -> float:
        """Of all ticks since then, of all processors; 0 where there was none, and where the kernel is told of none."""
        stolen, all_of_them = (now - before for now, before in zip(_ticks(), self._before, strict=True))
        return stolen / all_of_them if all_of_them else 0.0


class Undisturbed:
    """Measures rounds, some of them more than once."""

    def __init__(self, patience_s: float = PATIENCE_S, tries: int = TRIES) -> None:
        self._whole_s = self._patience_s = patience_s
        self._tries = tries
        self.shares: list[float] = []
        """Of the rounds that count."""
        self.aside = 0

    def renew(self) -> None:
        """Another part begins, with patience of its own."""
        self._patience_s = self._whole_s

    def __call__(self, run: Callable[..., R], *of: Any) -> R:
        """What `run(*of)` gives in a round that was not disturbed, or in the least disturbed one."""
        rounds: list[R] = []
        while True:
            began = time.monotonic()
            rounds.append(run(*of))
            if rounds[-1].stolen <= MOST or len(rounds) >= self._tries or self._patience_s <= 0:
                break
            self._patience_s -= time.monotonic() - began
        best = min(rounds, key=lambda each: each.stolen)
        self.shares.append(best.stolen)
        self.aside += len(rounds) - 1
        return best

    def facts(self) -> dict[str, Any]:
        """For the report."""
        shares = self.shares or [0.0]
        return {"median": round(statistics.median(shares), 4), "most": round(max(shares), 4), "aside": self.aside}


def _ticks() -> tuple[int, int]:
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[_USER : _STOLEN + 1]]
    return fields[-1], sum(fields)
