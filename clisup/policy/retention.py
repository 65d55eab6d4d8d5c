"""What retention removes: a pure rule over what is stored. Oldest first, by segments; a closed session may go as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Part", "expired", "shares"]

DAY_S = 86_400.0


class Part(NamedTuple):
    """The smallest thing that can be removed: a segment with the runs that ended in it, or all of a closed session."""

    session_id: str
    upto: int | None
    """Events up to this seq go; None: the whole session."""
    runs: tuple[int, ...]
    """The runs whose spools go with them."""
    size: int
    """Bytes, of the segment and those runs."""
    written: float
    """When it was written last: seconds since the epoch, the clock of the file system."""


def shares(
    first: Sequence[int], runs_at: Sequence[tuple[int, int | None]], runs: Iterable[int]
) -> list[tuple[int, ...]]:
    """Which runs go with which segment.

    `first` are the first seqs of the segments. `runs_at` says for each how many runs there had been at its head, and which
    of them was still running there (that one goes with the segment in which it ended).
    """
    found: list[list[int]] = [[] for _ in first]
    for run in sorted(runs):
        ended_before = (at - 1 for at in range(1, len(first)) if run <= runs_at[at][0] and run != runs_at[at][1])
        found[next(ended_before, len(first) - 1)].append(run)
    return [tuple(part) for part in found]


def expired(parts: Iterable[Part], *, now: float, days: float, limit: int, kept: int = 0) -> list[Part]:
    """The parts to be removed, oldest first: those older than `days`, then as many as bring the whole under `limit` bytes.

    `kept` are the bytes of what cannot be removed. 0 days or 0 bytes: no such limit. The parts of one session come in their
    order, and an older one always goes before a younger one.
    """
    left = sorted(parts, key=lambda part: part.written)  # stable: the parts of a session stay in order
    total = kept + sum(part.size for part in left)
    gone: list[Part] = []
    for part in left:
        old = days > 0 and now - part.written > days * DAY_S
        if not old and not (limit > 0 and total > limit):
            break
        gone.append(part)
        total -= part.size
    return gone
