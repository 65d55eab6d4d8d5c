"""Sessions of claude in a directory, by its transcripts (facts from 2.1.330). Pure.

`<config>/projects/<folder of the directory>/<session id>.jsonl` has an entry a line. The first `user` entry that is neither `isMeta`
nor a side chain holds the first prompt, the directory, the time and the git branch. `/rename` appends `custom-title`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from glob import escape

from clisup.backends.claude.transcript import config_directory, project_folder
from clisup.backends.frames import Frame
from clisup.backends.launch import UUID
from clisup.backends.native_sessions import NativeSession, entries_of
from clisup.backends.transcripts import texts_of

__all__ = ["ClaudeNativeSessions"]

_SUFFIX = ".jsonl"


class ClaudeNativeSessions:
    """Rules for claude, and for backends with the same transcripts. `home` returns the directory with `projects`."""

    def __init__(self, home: Callable[[Mapping[str, str]], str | None] = config_directory) -> None:
        self._home = home

    def pattern(self, cwd: str, env: Mapping[str, str]) -> str | None:
        home = self._home(env)
        return f"{escape(home)}/projects/{escape(project_folder(cwd))}/*{_SUFFIX}" if home is not None else None

    def read(self, name: str, head: bytes, tail: bytes) -> NativeSession | None:
        native = name.removesuffix(_SUFFIX)
        first = next((entry for entry in entries_of(head) if _is_prompt(entry)), None)
        if first is None or not UUID.fullmatch(native):
            return None
        titles = [_text(entry, "customTitle") for entry in entries_of(tail) if entry.get("type") == "custom-title"]
        return NativeSession(
            native,
            cwd=_text(first, "cwd"),
            prompt="\n".join(texts_of(first["message"].get("content"))),
            title=titles[-1] if titles else None,
            started_at=_text(first, "timestamp"),
            branch=_text(first, "gitBranch"),
        )


def _is_prompt(entry: Frame) -> bool:
    if entry.get("type") != "user" or entry.get("isMeta") or entry.get("isSidechain"):
        return False
    message = entry.get("message")
    return isinstance(message, dict) and any(text.strip() for text in texts_of(message.get("content")))


def _text(entry: Frame, name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value else None
