"""Health of the state directory: whether it can be written, since when, and the last error.

Pure: errors and times come in. A single successful write proves little on a nearly full disk. So a bad state ends only
when writes succeed and no write has failed for `CALM_S`. The state is entered once and left once, however many writes
are tried in between.
"""

from __future__ import annotations

import errno
from typing import Literal

StorageState = Literal["ok", "full", "read_only", "failing", "overloaded"]

CALM_S = 1.0
"""Seconds without a failure before a bad state ends. Longer than the pause between two tries (`STORAGE_RETRY_S`)."""
_STATES: dict[int, StorageState] = {errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EROFS: "read_only"}


HOPELESS_S = 600.0
"""Seconds after which a turn no longer waits for a disk that is read-only or broken."""


def is_hopeless(number: int, waited_s: float) -> bool:
    """Tell whether a turn with a write that was refused with this errno ends. Space can be freed, so a full disk is waited for."""
    return number == errno.EFBIG or (number in (errno.EROFS, errno.EIO) and waited_s > HOPELESS_S)


class StorageHealth:
    """Health of the state directory. `failed`, `overloaded` and `worked` return True if they change the state."""

    def __init__(self, ts: str) -> None:
        self.state: StorageState = "ok"
        self.since = ts
        self.error: str | None = None
        self.failures = 0
        """Refused writes since the daemon's start. Repeated tries count again."""
        self._last_failure = float("-inf")

    def failed(self, number: int, error: str, *, now: float, ts: str) -> bool:
        """Record a refused write with its errno and error text."""
        return self._failed(_STATES.get(number, "failing"), error, now, ts)

    def overloaded(self, error: str, *, now: float, ts: str) -> bool:
        """Record a write that failed for want of descriptors or memory: the disk itself may be well."""
        return self._failed("overloaded", error, now, ts)

    def _failed(self, state: StorageState, error: str, now: float, ts: str) -> bool:
        self.failures += 1
        self._last_failure = now
        self.error = error
        return self._enter(state, ts)

    def worked(self, *, now: float, ts: str) -> bool:
        """Record a write of some size that has reached the disk."""
        if now - self._last_failure < CALM_S or not self._enter("ok", ts):
            return False
        self.error = None
        return True

    def _enter(self, state: StorageState, ts: str) -> bool:
        if state == self.state:
            return False
        self.state, self.since = state, ts
        return True
