"""Sessions of codex, by its rollout files (facts from codex-cli 0.169.0). Pure.

`<CODEX_HOME>/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl` begins with `session_meta`: id, directory and time. A prompt is
an `item_completed` with a `UserMessage`. A sub-agent's file has another `thread_source` than `user`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import escape

from clisup.backends.frames import Frame, get_dict, get_str
from clisup.backends.launch import UUID
from clisup.backends.native_sessions import NativeSession, entries_of
from clisup.backends.transcripts import own_directory, texts_of
from clisup.policy.cli_files import Presence

__all__ = ["CodexNativeSessions", "CodexPresence", "codex_home", "prompt_of"]

_ID_LENGTH = 36


def codex_home(env: Mapping[str, str]) -> str | None:
    """Return codex's own directory: `CODEX_HOME`, else `.codex` in HOME."""
    return own_directory(env, ".codex", "CODEX_HOME")


class CodexNativeSessions:
    """Rules for both ways to run codex."""

    def pattern(self, cwd: str, env: Mapping[str, str]) -> str | None:
        home = codex_home(env)
        return f"{escape(home)}/sessions/*/*/*/rollout-*.jsonl" if home is not None else None

    def read(self, name: str, head: bytes, tail: bytes) -> NativeSession | None:
        native = name.removesuffix(".jsonl")[-_ID_LENGTH:]
        meta: Frame | None = None
        for entry in entries_of(head):
            payload = get_dict(entry, "payload") or {}
            if entry.get("type") == "session_meta" and meta is None:
                meta = payload
            elif meta is not None and (prompt := prompt_of(payload)):
                return _session(native, meta, prompt)
        return _session(native, meta, None) if meta is not None else None


def prompt_of(payload: Frame) -> str:
    """Return the text of a prompt, or an empty text for a payload of another kind."""
    item = get_dict(payload, "item") or {}
    if payload.get("type") != "item_completed" or item.get("type") != "UserMessage":
        return ""
    return "\n".join(texts_of(item.get("content")))


def _session(native: str, meta: Frame, prompt: str | None) -> NativeSession | None:
    if not UUID.fullmatch(native) or meta.get("thread_source") not in (None, "user"):
        return None
    branch = get_str(get_dict(meta, "git") or {}, "branch")
    return NativeSession(native, get_str(meta, "cwd"), prompt, None, get_str(meta, "timestamp"), branch)


class CodexPresence:
    """Rules to find the codex that has a thread open, by its lock. codex refuses a second writer, but does not tell who is the first.

    `<CODEX_HOME>/thread-writer-locks/<id>.lock` is locked (`flock`) from the thread's start or resume to the end of the process, by
    a codex in the terminal, `codex exec` and the app-server alike.
    """

    def directory(self, env: Mapping[str, str]) -> str | None:
        home = codex_home(env)
        return f"{home}/thread-writer-locks" if home else None

    def lock(self, directory: str, native_session_id: str) -> str | None:
        return f"{directory}/{native_session_id}.lock" if UUID.fullmatch(native_session_id) else None

    def read(self, name: str, data: bytes) -> Presence | None:
        return None

    def opened(self, argv: Sequence[bytes]) -> str | None:
        return None
