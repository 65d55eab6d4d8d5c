"""Native sessions that processes of a CLI report as open. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Presence", "PresenceRules"]


class Presence(NamedTuple):
    """Process of the CLI that reports a native session as open. `start_time` is in clock ticks since the boot."""

    pid: int
    native_session_id: str
    start_time: int | None = None
    pid_namespace: str | None = None


class PresenceRules(Protocol):
    """Rules for finding the native session that each process of a CLI has open."""

    def directory(self, env: Mapping[str, str]) -> str | None:
        """Return the directory with a file for each process, or None if it is unknown."""

    def read(self, name: str, data: bytes) -> Presence | None:
        """Return the content of such a file, or None for any other file. Never raises."""

    def opened(self, argv: Sequence[bytes]) -> str | None:
        """Return the native session that a command line of the CLI names literally, or None.

        Used for processes without a file.
        """
