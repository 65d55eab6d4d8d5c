"""Sessions that claude's processes have open, by claude's own file for each process and by command lines. Pure.

claude 2.1.329 writes `<config>/sessions/<pid>.json` within 0.3 s of its start, in the terminal, with `-p` and with stream-json
input. claude updates `sessionId` in this file and removes the file at its end, also after SIGTERM, but not after SIGKILL.
`procStart` is the start time of the process in clock ticks, and tells a reused pid apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from clisup.backends.claude.transcript import config_directory
from clisup.backends.launch import UUID
from clisup.policy.cli_files import Presence

__all__ = ["ClaudePresence"]

_NAME = re.compile(r"([1-9][0-9]{0,9})\.json")
_NAMESPACE = re.compile(r"pid:\[[0-9]{1,20}\]$")
_PROGRAMS = (b"claude", b"claude.exe")
_OPENS = (b"--resume", b"-r", b"--session-id")
_FORK = b"--fork-session"


class ClaudePresence:
    """Rules for claude's files and flags."""

    def __init__(self, home: Callable[[Mapping[str, str]], str | None] = config_directory) -> None:
        self._home = home

    def directory(self, env: Mapping[str, str]) -> str | None:
        home = self._home(env)
        return f"{home}/sessions" if home else None

    def read(self, name: str, data: bytes) -> Presence | None:
        """Return the pattern `<pid>.json`. The `.key` beside it holds a secret and is never read."""
        match = _NAME.fullmatch(name)
        try:
            said = json.loads(data) if match else None
        except (ValueError, RecursionError):
            return None
        if match is None or not isinstance(said, dict) or said.get("pid") != int(match[1]):
            return None
        native, domain = said.get("sessionId"), said.get("pidDomain")
        if not isinstance(native, str):
            return None
        namespace = _NAMESPACE.search(domain) if isinstance(domain, str) else None
        return Presence(int(match[1]), native, _ticks(said.get("procStart")), namespace[0] if namespace else None)

    def opened(self, argv: Sequence[bytes]) -> str | None:
        """Return the session of `--resume ID` and its other forms, for programs called claude. A fork writes to its new id only."""
        if not argv or argv[0].rpartition(b"/")[2] not in _PROGRAMS:
            return None
        wanted = _OPENS[2:] if _FORK in argv else _OPENS
        for word, after in zip(argv[1:], [*argv[2:], b""], strict=True):
            flag, equals, value = word.partition(b"=")
            if flag in wanted and (native := _native_id(value if equals else after)) is not None:
                return native
        return None


def _ticks(said: object) -> int | None:
    text = str(said)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _native_id(value: bytes) -> str | None:
    """Return the session id of an id or of a transcript's path."""
    text = value.rpartition(b"/")[2].removesuffix(b".jsonl").decode("ascii", "replace")
    return text if UUID.fullmatch(text) else None
