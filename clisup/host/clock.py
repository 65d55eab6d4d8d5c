"""Clocks, read only here: monotonic time for every timer, wall time for stamps that people read."""

from __future__ import annotations

import ctypes
import functools
import time
from datetime import UTC, datetime

_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised to a reliable server
_TIMEX_BYTES = 1024  # struct timex is 208 bytes on 64-bit Linux; its first field, modes, is 0: only read

monotonic = time.monotonic
"""Seconds that no change of the wall clock affects. The clock stands still while the machine is suspended."""

pause = time.sleep
"""Block this thread for some seconds: for a wait before the event loop runs."""


def timestamp() -> str:
    """Return the time in RFC 3339 UTC with microseconds, for the `ts` of events."""
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{_second(seconds)}.{micros:06d}Z"


@functools.lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    """Format a second. The cache limits this to once a second: it takes ten times as long as the rest."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def age_of(stamp: str) -> float:
    """Return the seconds since a stamp of `timestamp`, for people, or 0 for a stamp in the future.

    The wall clock may jump: no timer may use this.
    """
    return max(0.0, round((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds(), 3))


def seconds_of(stamp: str) -> float:
    """Return a stamp of `timestamp` in seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp()


def suspended() -> float:
    """Return the seconds of suspension since boot: CLOCK_BOOTTIME counts them, CLOCK_MONOTONIC does not."""
    return uptime() - time.monotonic()


def uptime() -> float:
    """Return the seconds since boot, with the time of suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> float:
    """Return the seconds since the epoch, to compare with the times of files.

    The value jumps when the clock is set: no timer may use it.
    """
    return time.time()


def boot_id() -> str:
    """Return this boot's id: a pid means nothing across a reboot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def synchronised() -> bool | None:
    """Tell whether a time service keeps the wall clock right. Return None if the kernel does not say (adjtimex(2))."""
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
