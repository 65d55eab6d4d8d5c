"""Ways to break the daemon, so that one can see that the comparison sees it. They are applied in the daemon's own process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

__all__ = ["SABOTAGES"]


def _rewind() -> None:
    """A new daemon journals again what is journaled already."""
    from clisup.daemon.run import Run

    Run._journaled = lambda *_args: False  # type: ignore[method-assign]


def _skip() -> None:
    """A new daemon takes what the spool holds for journaled, whatever the journal says."""
    from clisup.daemon.run import Run
    from clisup.host.spool import spool_size

    begin = Run.__init__

    def begins(self: Any, *args: Any) -> None:
        begin(self, *args)
        self.skipped = spool_size(self._dir.out)

    Run.__init__ = begins  # type: ignore[method-assign]
    Run._journaled = lambda self, _spool, line, _k=0: line.end <= self.skipped  # type: ignore[attr-defined, method-assign]


def _shuffle() -> None:
    """Events that go out together go out the other way round."""
    from clisup.daemon.connection import Connection

    send = Connection._send_many
    Connection._send_many = lambda self, subscription, frames: send(self, subscription, frames[::-1])  # type: ignore[method-assign]


def _exits() -> None:
    """Every exit is taken for a good one."""
    from clisup.daemon import leash

    read = leash.exit_from_file
    leash.exit_from_file = lambda raw: dataclasses.replace(read(raw), exit_code=0, signal=None)


SABOTAGES: dict[str, Callable[[], None]] = {"rewind": _rewind, "skip": _skip, "shuffle": _shuffle, "exits": _exits}
"""By name: doubled, lost, reordered, wrong exits."""
