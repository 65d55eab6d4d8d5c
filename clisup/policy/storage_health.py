"""Whether the state directory can be written: one word for it, since when, and why not. Pure: errors and times come in.

A single write that works says little on a disk that is nearly full, so a bad state ends only when writes work and none has
failed for `CALM_S`: it is entered once and left once, however often something is tried in between.
"""

from __future__ import annotations

import errno
from typing import Literal

__all__ = ["CALM_S", "StorageHealth", "StorageState"]

StorageState = Literal["ok", "full", "read_only", "failing"]

CALM_S = 1.0
"""Longer than the pause between two tries of what was refused (`STORAGE_RETRY_S`)."""
_STATES: dict[int, StorageState] = {errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EROFS: "read_only"}


class StorageHealth:
    """`failed` and `worked` give True where the state is another one now."""

    def __init__(self, ts: str) -> None:
        self.state: StorageState = "ok"
        self.since = ts
        self.error: str | None = None
        self.failures = 0
        """Writes that were refused since the daemon's start; those that are tried again count again."""
        self._last_failure = float("-inf")

    def failed(self, number: int, error: str, *, now: float, ts: str) -> bool:
        """A write was refused with this errno, in these words."""
        self.failures += 1
        self._last_failure = now
        self.error = error
        return self._enter(_STATES.get(number, "failing"), ts)

    def worked(self, *, now: float, ts: str) -> bool:
        """A write of some size has reached the disk."""
        if now - self._last_failure < CALM_S or not self._enter("ok", ts):
            return False
        self.error = None
        return True

    def _enter(self, state: StorageState, ts: str) -> bool:
        if state == self.state:
            return False
        self.state, self.since = state, ts
        return True
