"""Drift in the daemon: runs add their samples, and the counts are on disk before the next run ends."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from clisup.daemon.journal.storage import Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.log import event_logger
from clisup.model.structs import JsonObject
from clisup.ops.drift import DriftEntry, FrameSample
from clisup.store.drift_store import known_fields, load_drift, save_drift

FIRST_RUNS, EVERY = 16, 8
"""Compare the fields of the first runs of a version, then of every eighth run: a comparison costs a tenth of a short turn."""
_log = event_logger()


class Drift:
    """Counts of unknown frames and fields, kept in the state directory."""

    def __init__(self, state_dir: str, storage: Storage) -> None:
        self._state_dir = state_dir
        self._storage = storage
        self._book = load_drift(state_dir)
        self._known: JsonObject = {}
        self._runs: dict[str, int] = {}  # runs of the last version
        self._version: dict[str, str] = {}

    def sample(self, kind: str) -> FrameSample:
        """Return an empty sample for one run. Every sample counts unknown frames, not every sample compares fields."""
        number = self._runs[kind] = self._runs.get(kind, 0) + 1
        if number > FIRST_RUNS and number % EVERY:
            return FrameSample(None)
        if kind not in self._known:
            self._known[kind] = known_fields(kind)
        return FrameSample(self._known[kind])

    def add(self, kind: str, sample: FrameSample, version: str | None) -> None:
        """Add an ended run. The version in the CLI's own output takes precedence. A full disk loses only counts."""
        if (seen := sample.version or version) is not None and self._version.get(kind) != seen:
            self._version[kind], self._runs[kind] = seen, 0
        if not self._book.add(kind, seen, sample, ts=clock.timestamp()):
            return
        _log.warning("drift", kind=kind, version=seen, frames=len(sample.frames), fields=len(sample.fields))
        try:
            with self._storage.watched():
                save_drift(self._state_dir, self._book)
        except WorldError as error:
            _log.warning("drift not stored", error=error.message)

    def __iter__(self) -> Iterator[DriftEntry]:
        return iter(self._book)

    def describe(self) -> list[JsonObject]:
        """Return the rows of `drift` in `daemon/status`."""
        return [asdict(entry) for entry in self._book]
