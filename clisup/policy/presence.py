"""Which native session a process of a CLI has open, by its own word. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Presence", "PresenceRules"]


class Presence(NamedTuple):
    """A process of the CLI that has a native session open, by its own word. `start_time` is in clock ticks since the boot."""

    pid: int
    native_session_id: str
    start_time: int | None = None
    pid_namespace: str | None = None


class PresenceRules(Protocol):
    """Where a CLI's processes say which session each of them has open."""

    def directory(self, env: Mapping[str, str]) -> str | None:
        """The directory with a file for each process, or None where it cannot be known."""

    def read(self, name: str, data: bytes) -> Presence | None:
        """What such a file says; None for one that is none. Never raises."""

    def opened(self, argv: Sequence[bytes]) -> str | None:
        """The native session that a command line of the CLI names, word for word, for a process that has no file; else None."""
