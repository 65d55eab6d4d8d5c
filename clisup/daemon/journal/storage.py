"""State of the storage: every refused write is reported here, and a probe finds out when writing works again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import trio

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.files import probe_write
from clisup.host.log import event_logger
from clisup.host.threads import in_thread
from clisup.policy.storage_health import StorageHealth

__all__ = ["STORAGE_RETRY_S", "Storage"]

STORAGE_RETRY_S = 0.25
"""Seconds before the next try of a refused write."""
PROBE_S = 0.5
T = TypeVar("T")
_log = event_logger()


class _Watch:
    """Context manager of `watched`. A generator would take three times as long."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if isinstance(error, WorldError):
            self._storage.refused(error)


class Storage:
    """Storage of one state directory. Every write there runs under `watched`. `probe` is a task."""

    def __init__(self, state_dir: str) -> None:
        self._dir = state_dir
        self._watch = _Watch(self)
        self._health = StorageHealth(clock.timestamp())
        self._trouble = trio.Event()
        self.stopping = False
        """True while the daemon stops. No task waits for the disk then."""

    @property
    def ok(self) -> bool:
        """Tell whether writing works."""
        return self._health.state == "ok"

    @property
    def state(self) -> str:
        """Return `ok`, or the kind of trouble."""
        return self._health.state

    def watched(self) -> _Watch:
        """Return the context of a write. The context counts a `WorldError(storage_failed)` with an errno, and passes it on."""
        return self._watch

    def refused(self, error: WorldError) -> None:
        """Report an error. A `storage_failed` or `overloaded` with an errno counts as trouble."""
        if error.kind not in ("storage_failed", "overloaded") or "errno" not in error.data:
            return
        if error.data["errno"] == errno.EFBIG:
            return  # the limit of one file is no state of the disk
        now, ts = clock.monotonic(), clock.timestamp()
        if error.kind == "overloaded":
            changed = self._health.overloaded(error.message, now=now, ts=ts)
        else:
            changed = self._health.failed(int(error.data["errno"]), error.message, now=now, ts=ts)
        if changed:
            _log.error("storage trouble", state=self._health.state, error=error.message)
        self._trouble.set()

    async def probe(self) -> None:
        """While there is trouble, try to write a file now and then. The trouble ends after a success without other failures."""
        while True:
            await self._trouble.wait()
            await trio.sleep(PROBE_S)
            try:
                with self.watched():
                    await in_thread(probe_write, self._dir)
            except WorldError:
                continue
            if self._health.worked(now=clock.monotonic(), ts=clock.timestamp()):
                self._trouble = trio.Event()
                _log.warning("storage works again", refused=self._health.failures)

    async def with_retry(self, action: Callable[[], T]) -> T:
        """Call `action`. While the disk refuses, wait and try again."""
        while True:
            try:
                with self.watched():
                    return action()
            except WorldError:
                await trio.sleep(STORAGE_RETRY_S)

    async def recovered(self) -> None:
        """Wait until writing works again, or the daemon stops."""
        while not self.ok and not self.stopping:
            await trio.sleep(STORAGE_RETRY_S)

    def describe(self) -> dict[str, Any]:
        """Return `daemon.storage` of `daemon/status`."""
        health = self._health
        return {
            "path": self._dir,
            "state": health.state,
            "since": health.since,
            "error": health.error,
            "failures": health.failures,
            "free_bytes": self._free(),
            "writable": os.access(self._dir, os.W_OK),
        }

    def _free(self) -> int | None:
        try:
            disk = os.statvfs(self._dir)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize
