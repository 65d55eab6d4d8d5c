"""Who plays: the backend of the sessions, its part of the configuration, and the kinds of sessions that it can play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos.compare import Counts
from tests.chaos.scripts import PATTERN, Kind

__all__ = ["Cast"]


class Cast:
    """The demo backend. A real CLI has a cast of its own, with a fake of its API that lives as long as the cast."""

    backend = "demo"
    pattern: tuple[Kind, ...] = PATTERN
    sessions = 20
    """So many at once, if nobody says how many."""
    not_met: tuple[str, ...] = ()
    """Failpoints that these sessions do not come to, by prefix."""
    params: dict[str, Any] = {}
    """For `session/new`."""

    def prepare(self, cwd: Path) -> None:
        """Make the directory of a session what its CLI expects."""
        cwd.mkdir()

    def config(self) -> str:
        """Its tables of the configuration."""
        return ""

    def asked(self, where: str, session_id: str, prompts: int) -> Counts:
        """What its API was asked by this session: each step of `prompts` prompts once. The demo has no API."""
        return Counts()

    def kind_of(self, slot: int) -> Kind:
        """The kind that the sessions of this slot have."""
        return self.pattern[slot % len(self.pattern)]

    def close(self) -> None:
        """End the fake."""
