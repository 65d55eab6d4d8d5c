"""What every measurement is given: its size, a scratch directory, the programs, and where to say how far it is."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from tests.bench.frames import Mix, write_deltas, write_huge, write_mix
from tests.bench.place import Place, place
from tests.bench.stolen import PATIENCE_S, Undisturbed

__all__ = ["Setting", "Size"]

Size = Literal["full", "short", "tiny"]
"""`short` is for `.ci/run`, `tiny` for the tests, which look at everything but the figures."""
HUGE = 5_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """`sdk` is the Python of an environment with claude-agent-sdk, `blemees` a checkout of blemees-agentd."""

    scratch: Path
    size: Size = "full"
    sdk: Path | None = None
    blemees: Path | None = None
    quiet: bool = False

    @property
    def programs(self) -> Path:
        return self.scratch / "programs"

    @cached_property
    def mix(self) -> Mix:
        return write_mix(self.scratch / "mix")

    @cached_property
    def stamped(self) -> Mix:
        return write_mix(self.scratch / "stamped", stamped=True)

    @cached_property
    def deltas(self) -> Mix:
        return write_deltas(self.scratch / "deltas")

    @cached_property
    def huge(self) -> Mix:
        return write_huge(self.scratch / "huge", HUGE)

    @cached_property
    def undisturbed(self) -> Undisturbed:
        """Measures a round, anew where the hypervisor disturbed it; the smaller forms have no time for that."""
        return Undisturbed(self.of(PATIENCE_S, 0.0, 0.0))

    def place(self) -> AbstractContextManager[Place]:
        """A daemon to be measured: a whole one, except where nobody looks at the figures."""
        return place(self.programs, cold=self.size != "tiny")

    def of(self, full: T, short: T, tiny: T) -> T:
        """The one that fits the size."""
        return {"full": full, "short": short, "tiny": tiny}[self.size]

    def say(self, text: str) -> None:
        """A line of progress, on stderr."""
        if not self.quiet:
            print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)
