"""The daemon's book of drift: runs add what they saw, and it is on the disk before the next one ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog
from msgspec.structs import asdict

from clisup.daemon.storage import Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.ops.drift import DriftEntry, FrameSample
from clisup.store.drift_store import known_fields, load_drift, save_drift

__all__ = ["Drift"]

FIRST_RUNS, EVERY = 16, 8
"""The fields of so many runs of a version are compared, then of each so-many-th: of a short turn's cost it is a tenth."""
_log = structlog.get_logger()


class Drift:
    """Counts of unknown frames and fields, kept in the state directory."""

    def __init__(self, state_dir: str, storage: Storage) -> None:
        self._state_dir = state_dir
        self._storage = storage
        self._book = load_drift(state_dir)
        self._known: dict[str, Any] = {}
        self._runs: dict[str, int] = {}  # of the version that was heard of last
        self._version: dict[str, str] = {}

    def sample(self, kind: str) -> FrameSample:
        """For one run of a CLI whose frames are those of `kind`. Unknown frames are counted in each."""
        number = self._runs[kind] = self._runs.get(kind, 0) + 1
        if number > FIRST_RUNS and number % EVERY:
            return FrameSample(None)
        if kind not in self._known:
            self._known[kind] = known_fields(kind)
        return FrameSample(self._known[kind])

    def add(self, kind: str, sample: FrameSample, version: str | None) -> None:
        """Take in an ended run; what its CLI said of its version goes before `version`. A full disk loses only counts."""
        if (said := sample.version or version) is not None and self._version.get(kind) != said:
            self._version[kind], self._runs[kind] = said, 0
        if not self._book.add(kind, said, sample, ts=clock.timestamp()):
            return
        _log.warning("drift", kind=kind, version=said, frames=len(sample.frames), fields=len(sample.fields))
        try:
            with self._storage.watched():
                save_drift(self._state_dir, self._book)
        except WorldError as error:
            _log.warning("drift not stored", error=error.message)

    def __iter__(self) -> Iterator[DriftEntry]:
        return iter(self._book)

    def describe(self) -> list[dict[str, Any]]:
        """`drift` of `daemon/status`."""
        return [asdict(entry) for entry in self._book]
