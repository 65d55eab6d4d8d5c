"""Rules to list the sessions that a CLI keeps of a directory, also those that clisup did not start. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from clisup.backends.frames import Frame

__all__ = ["NativeSession", "NativeSessionRules", "entries_of"]


class NativeSession(NamedTuple):
    """Session of a CLI, as its transcript tells. `cwd` is None if the transcript does not name the directory."""

    native_session_id: str
    cwd: str | None = None
    prompt: str | None = None
    title: str | None = None
    started_at: str | None = None
    branch: str | None = None


class NativeSessionRules(Protocol):
    """Rules to find transcripts and to read them. The daemon reads the files, and the beginning and end of each alone."""

    def pattern(self, cwd: str, env: Mapping[str, str]) -> str | None:
        """Return a glob for the transcripts of a directory (a real path), or of all directories.

        Return None if the environment does not tell the CLI's directory.
        """

    def read(self, name: str, head: bytes, tail: bytes) -> NativeSession | None:
        """Return the session of a file, or None if the file holds no session of a person. Never raises."""


def entries_of(data: bytes) -> Iterator[Frame]:
    """Yield the entries of JSON lines. Skip lines that are cut or no objects."""
    for line in data.split(b"\n"):
        if not line.startswith(b"{"):
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry
