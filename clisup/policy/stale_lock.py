"""Description of a lock that a CLI may leave behind."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["StaleLock"]


class StaleLock(Struct, frozen=True):
    """Lock that a CLI may leave behind at its end and that its next start would wait for: an empty directory.

    The lock lies at `path` under the value of the first variable of `homes` that the CLI has. Its holder can only be a
    living process of the same user that runs `program` and has the same home.
    """

    program: str
    homes: tuple[str, ...]
    path: str
