"""The only place that reads clocks: monotonic for every timer, wall time for stamps that people read."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["age_of", "boot_id", "monotonic", "suspended", "timestamp", "wall"]

monotonic = time.monotonic
"""Seconds that no change of the wall clock touches. Stands still while the machine is suspended."""


def timestamp() -> str:
    """RFC 3339 UTC with microseconds, for the `ts` of events."""
    now = datetime.now(UTC)
    return f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond:06d}Z"


def age_of(stamp: str) -> float:
    """Seconds since a stamp that `timestamp` gave, for people: it follows the wall clock, so no timer may use it."""
    return round((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds(), 3)


def suspended() -> float:
    """Seconds that the machine has been suspended since its boot: CLOCK_BOOTTIME counts them, CLOCK_MONOTONIC does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def wall() -> float:
    """Seconds since the epoch, to compare with the times of files. It jumps where the clock is set: no timer may use it."""
    return time.time()


def boot_id() -> str:
    """This boot's id: a pid means nothing across a reboot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
