"""The state of the storage, for everybody to see: each refused write is told here, and a probe finds out when it is over."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import structlog
import trio

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.files import probe_write
from clisup.policy.storage_health import StorageHealth

__all__ = ["STORAGE_RETRY_S", "Storage"]

STORAGE_RETRY_S = 0.25
"""Between two tries to store what the disk refused."""
PROBE_S = 0.5
T = TypeVar("T")
_log = structlog.get_logger()


class _Watch:
    """What `watched` gives: on each event's way, so no generator, which takes three times as long."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if isinstance(error, WorldError) and error.kind == "storage_failed" and "errno" in error.data:
            self._storage.failed(error)


class Storage:
    """One state directory. Whatever writes there does it under `watched`; `probe` is a task."""

    def __init__(self, state_dir: str) -> None:
        self._dir = state_dir
        self._watch = _Watch(self)
        self._health = StorageHealth(clock.timestamp())
        self._trouble = trio.Event()
        self.stopping = False
        """The daemon stops: nobody should wait for a better disk any more."""

    @property
    def ok(self) -> bool:
        """Nothing was refused lately."""
        return self._health.state == "ok"

    @property
    def state(self) -> str:
        """`ok`, or what is wrong with it."""
        return self._health.state

    def watched(self) -> _Watch:
        """Every write of state: a `WorldError(storage_failed)` with an errno passes through and is counted."""
        return self._watch

    def failed(self, error: WorldError) -> None:
        """A write was refused."""
        number = int(error.data["errno"])
        if self._health.failed(number, error.message, now=clock.monotonic(), ts=clock.timestamp()):
            _log.error("storage trouble", state=self._health.state, error=error.message)
        self._trouble.set()

    async def probe(self) -> None:
        """While something is wrong: write a file now and then. That it works, and nothing else fails, is the end of it."""
        while True:
            await self._trouble.wait()
            await trio.sleep(PROBE_S)
            try:
                with self.watched():
                    await trio.to_thread.run_sync(probe_write, self._dir)
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
        """Wait until it is well again, or the daemon stops."""
        while not self.ok and not self.stopping:
            await trio.sleep(STORAGE_RETRY_S)

    def describe(self) -> dict[str, Any]:
        """`daemon.storage` of `daemon/status`."""
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
