"""Rules of an adapter with `Capabilities.history`: a history as a session file of its CLI. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from clisup.model.prompts.history import HistoryMessage

__all__ = ["Seed", "SeedRules"]


class Seed(NamedTuple):
    """A history, and the session that begins with it."""

    history: Sequence[HistoryMessage]
    native_session_id: str
    cwd: str
    """A real path, without symbolic links."""
    model: str | None
    """Model of the session."""
    at: str
    """Time in RFC 3339."""


class SeedRules(Protocol):
    """Rules to write a history. The daemon writes the file, whole or not at all."""

    def path(self, native_session_id: str, cwd: str, env: Mapping[str, str]) -> str | None:
        """Return the path of the file. Its name is the id with `.jsonl`.

        Return None if the environment does not tell the CLI's directory.
        """

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file in order, each with its newline."""
