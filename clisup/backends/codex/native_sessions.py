"""Sessions of codex, by its rollout files (facts from codex-cli 0.169.0). Pure.

`<CODEX_HOME>/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl` begins with `session_meta`: id, directory and time. A prompt is
an `item_completed` with a `UserMessage`. A sub-agent's file has another `thread_source` than `user`.
"""

from __future__ import annotations

from collections.abc import Mapping
from glob import escape

from clisup.backends.frames import Frame, get_dict, get_str
from clisup.backends.launch import UUID
from clisup.backends.native_sessions import NativeSession, entries_of
from clisup.backends.transcripts import own_directory, texts_of

__all__ = ["CodexNativeSessions"]

_ID_LENGTH = 36


class CodexNativeSessions:
    """Rules for both ways to run codex."""

    def pattern(self, cwd: str, env: Mapping[str, str]) -> str | None:
        home = own_directory(env, ".codex", "CODEX_HOME")
        return f"{escape(home)}/sessions/*/*/*/rollout-*.jsonl" if home is not None else None

    def read(self, name: str, head: bytes, tail: bytes) -> NativeSession | None:
        native = name.removesuffix(".jsonl")[-_ID_LENGTH:]
        meta: Frame | None = None
        for entry in entries_of(head):
            payload = get_dict(entry, "payload") or {}
            if entry.get("type") == "session_meta" and meta is None:
                meta = payload
            elif meta is not None and (prompt := _prompt(payload)):
                return _session(native, meta, prompt)
        return _session(native, meta, None) if meta is not None else None


def _prompt(payload: Frame) -> str:
    item = get_dict(payload, "item") or {}
    if payload.get("type") != "item_completed" or item.get("type") != "UserMessage":
        return ""
    return "\n".join(texts_of(item.get("content")))


def _session(native: str, meta: Frame, prompt: str | None) -> NativeSession | None:
    if not UUID.fullmatch(native) or meta.get("thread_source") not in (None, "user"):
        return None
    branch = get_str(get_dict(meta, "git") or {}, "branch")
    return NativeSession(native, get_str(meta, "cwd"), prompt, None, get_str(meta, "timestamp"), branch)
