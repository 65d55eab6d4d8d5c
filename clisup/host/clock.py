"""The only place that reads clocks: monotonic for every timer, wall time for stamps that people read."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["boot_id", "monotonic", "timestamp"]

monotonic = time.monotonic
"""Seconds that no change of the wall clock touches. Stands still while the machine is suspended."""


def timestamp() -> str:
    """RFC 3339 UTC with microseconds, for the `ts` of events."""
    now = datetime.now(UTC)
    return f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond:06d}Z"


def boot_id() -> str:
    """This boot's id: a pid means nothing across a reboot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
