"""Files by which CLIs report an open session, and locks that CLIs leave behind. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct


class Presence(NamedTuple):
    """CLI process that reports a native session as open. `start_time` is in clock ticks since the boot."""

    pid: int
    native_session_id: str
    start_time: int | None = None
    pid_namespace: str | None = None


class PresenceRules(Protocol):
    """Rules to find the open native session of each process of a CLI."""

    def directory(self, env: Mapping[str, str]) -> str | None:
        """Return the directory with a file for each process or session, or None for an unknown directory."""

    def lock(self, directory: str, native_session_id: str) -> str | None:
        """Return the file that a process with this native session holds locked, or None for a CLI without locks."""

    def read(self, name: str, data: bytes) -> Presence | None:
        """Return the content of such a file, or None for any other file. Never raises."""

    def opened(self, argv: Sequence[bytes]) -> str | None:
        """Return the native session in a command line of the CLI, if named literally, or None.

        Used for processes without a file.
        """


class StaleLock(Struct, frozen=True):
    """Lock that a CLI may leave behind at its end and that its next start would wait for: an empty directory.

    The lock lies at `path` under the value of the first variable of `homes` that the CLI has. Only a living process of the
    same user and home that runs `program` can hold the lock.
    """

    program: str
    homes: tuple[str, ...]
    path: str
