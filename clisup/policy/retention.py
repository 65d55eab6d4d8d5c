"""Retention: the choice of stored data to remove. Pure.

The oldest data goes first, by segments. A closed session may go as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clisup.policy.wall_time import ClockLook, age_of

DAY_S = 86_400.0


class Part(NamedTuple):
    """Smallest removable unit: a segment with the runs that ended in it, or all of a closed session."""

    session_id: str
    upto: int | None
    """Seq of the last event to remove; None for the whole session."""
    runs: tuple[int, ...]
    """Runs whose spools are removed together with the events."""
    size: int
    """Bytes of the segment and of those runs."""
    written: float
    """Time of the last write, in seconds since the epoch by the file system's clock."""


def shares(
    first: Sequence[int], runs_at: Sequence[tuple[int, int | None]], runs: Iterable[int]
) -> list[tuple[int, ...]]:
    """Assign each run to a segment.

    `first` are the first seqs of the segments. For each segment, `runs_at` gives the number of runs before the head, and
    the run in progress there. A run in progress belongs to the segment of its end.
    """
    found: list[list[int]] = [[] for _ in first]
    for run in sorted(runs):
        ended_before = (at - 1 for at in range(1, len(first)) if run <= runs_at[at][0] and run != runs_at[at][1])
        found[next(ended_before, len(first) - 1)].append(run)
    return [tuple(part) for part in found]


def expired(parts: Iterable[Part], *, clock: ClockLook, days: float, limit: int, kept: int = 0) -> list[Part]:
    """Return the parts to remove, oldest first: parts older than `days`, then as many as bring the total under `limit`
    bytes.

    `kept` is the number of bytes that cannot be removed. 0 days or 0 bytes means no such limit. The parts of one session come in
    their order, and an older part always goes before a younger one.
    """
    left = sorted(parts, key=lambda part: part.written)  # stable: the parts of a session stay in order
    total = kept + sum(part.size for part in left)
    gone: list[Part] = []
    for part in left:
        old = days > 0 and age_of(part.written, clock) > days * DAY_S
        if not old and not (limit > 0 and total > limit):
            break
        gone.append(part)
        total -= part.size
    return gone
