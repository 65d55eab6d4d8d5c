"""Rules of an adapter with `Capabilities.fork`: a copy of a transcript as a new native session. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from clisup.model.sessions.turn_trace import TurnTrace

__all__ = ["ForkPlan", "ForkRules"]


class ForkPlan(NamedTuple):
    """Parts of a transcript that make a fork."""

    parts: Sequence[tuple[int, int]]
    """Start and end of each part, in order. A part has whole lines."""
    complete: bool
    """The transcript has the end of the turn. A CLI may write late, so the daemon plans again after a pause if it is missing."""


class ForkRules(Protocol):
    """Rules to copy a CLI's transcript to a new native session. The daemon reads and writes the files."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """Plan a fork at the end of turn `upto`, which is one of `turns`. With `whole`, plan a copy of everything.

        `upto` is None only without turns, and `whole` is then set.

        Raises `UsageError`: turn_not_found, limit_exceeded.
        """

    def copy(self, line: bytes, native_session_id: str) -> bytes:
        """Return a line of the plan as it stands in the copy."""
