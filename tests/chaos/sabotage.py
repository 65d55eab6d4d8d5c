"""Ways to break the daemon, so that one can see that the comparison sees it. They are applied in the daemon's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

__all__ = ["SABOTAGES", "checkpoints"]


def checkpoints() -> None:
    """The daemon writes a checkpoint after each step, as none of these turns is long. Nothing is broken."""
    from clisup.daemon.runs import checkpoint

    checkpoint.CHECKPOINT_BYTES = checkpoint.SHARE = 0


def _rewind() -> None:
    """A new daemon journals again what is journaled already."""
    from clisup.model.sessions.ledger import TurnRecord

    TurnRecord.has_journaled = lambda *_args: False  # type: ignore[method-assign]


def _skip() -> None:
    """A new daemon takes what the spool holds for journaled, whatever the journal says."""
    from clisup.daemon.runs import run
    from clisup.model.sessions.ledger import TurnRecord
    from clisup.store.spool import spool_size

    begin = run.Run.__init__
    skipped: dict[int, int] = {}

    def begins(self: Any, *args: Any) -> None:
        begin(self, *args)
        skipped[id(self._sink.turn)] = spool_size(self._dir.out)

    run.Run.__init__ = begins  # type: ignore[method-assign]
    TurnRecord.has_journaled = lambda self, _spool, end, _k=0: end <= skipped.get(id(self), 0)  # type: ignore[method-assign]


def _ahead() -> None:
    """A checkpoint says that all output so far is decoded, whatever is."""
    from clisup.daemon.runs.checkpoint import Checkpoint, Checkpoints
    from clisup.store.spool import spool_size

    save = Checkpoints.save

    def saved(self: Checkpoints, checkpoint: Checkpoint) -> None:
        end = spool_size(self._dir.out)
        save(self, replace(checkpoint, place={**checkpoint.place, "out": end}))

    Checkpoints.save = saved  # type: ignore[method-assign]


def _shuffle() -> None:
    """Events that go out together go out the other way round."""
    from clisup.daemon.clients.subscription import EventFilter
    from clisup.model.journal import EventFrames

    wanted_of = EventFilter.wanted_of

    def shuffled(self: EventFilter, frames: EventFrames) -> bytes:
        return b"".join(wanted_of(self, frames).splitlines(keepends=True)[::-1])

    EventFilter.wanted_of = shuffled  # type: ignore[method-assign]


def _exits() -> None:
    """Every exit is taken for a good one."""
    from clisup.daemon.runs import keeper_link as leash

    read = leash.exit_from_file
    leash.exit_from_file = lambda raw: replace(read(raw), exit_code=0, signal=None)


SABOTAGES: dict[str, Callable[[], None]] = {
    "rewind": _rewind, "skip": _skip, "ahead": _ahead, "shuffle": _shuffle, "exits": _exits,
}  # fmt: skip
"""By name: doubled, lost, lost, reordered, wrong exits."""
