"""claude's own files (2.1.329): transcripts that begin with a caller's history, and the files of running processes. Pure.

A transcript has JSON lines. A `user` entry holds the prompt as a string or as text blocks. An `assistant` entry after it is the
model's answer. A killed CLI leaves an incomplete last line, which claude ignores, too.

A written history goes to the API unchanged. The CLI sends its own words about the machine with the first new prompt. A line needs
`type`, `uuid`, `parentUuid`, `timestamp` and `message.content`, as compact JSON. The CLI merges adjacent user messages. It leaves
out blank texts and the images of failed results, which an API refuses.

A process writes `<config>/sessions/<pid>.json` within 0.3 s of its start, in the terminal, with `-p` and with stream-json input. It
updates `sessionId` in this file and removes the file at its end, also after SIGTERM, but not after SIGKILL. `procStart` is the
start time of the process in clock ticks, and tells a reused pid apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clisup.backends.frames import Frame
from clisup.backends.launch import UUID
from clisup.backends.transcripts import Seed, json_line, own_directory, texts_of
from clisup.model.prompts.history import (
    HistoryBlock,
    HistoryImage,
    HistoryText,
    HistoryThinking,
    HistoryToolUse,
    is_blank,
    sendable,
)
from clisup.policy.cli_files import Presence

__all__ = ["ClaudePresence", "ClaudeSeed", "config_directory", "project_folder", "read_message"]


def config_directory(env: Mapping[str, str]) -> str | None:
    """Return claude's own directory: `CLAUDE_CONFIG_DIR`, else `.claude` in HOME."""
    return own_directory(env, ".claude", "CLAUDE_CONFIG_DIR")


_FOLDER_LIMIT = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClaudeSeed:
    """Rules of a history, for claude and for backends with the same transcripts.

    `home` returns the directory with the CLI's `projects`, or None if the environment does not tell. With `marks_caches`, the
    file keeps the caller's cache marks (`cache_control`). claude sets its own.
    """

    def __init__(
        self, home: Callable[[Mapping[str, str]], str | None] = config_directory, *, marks_caches: bool = False
    ) -> None:
        self.home = home
        self._marks_caches = marks_caches

    def path(self, seed: Seed, env: Mapping[str, str]) -> str | None:
        """Return the CLI's own path for a session of this id that begins in `cwd`."""
        home = self.home(env)
        name = f"{project_folder(seed.cwd)}/{seed.native_session_id}.jsonl"
        return f"{home}/projects/{name}" if home is not None else None

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file, each with its newline. The same seed gives the same bytes."""
        parent: str | None = None
        for number, (role, said) in enumerate(sendable(seed.history)):
            content = said if isinstance(said, str) else [self._marked(block) for block in said]
            message: Frame = {"role": role, "content": content}
            if role == "assistant":
                message |= _of_the_model(content, seed.model)
            own = seed.entry_id(number)
            yield json_line({
                "parentUuid": parent,
                "isSidechain": False,
                "type": role,
                "message": message,
                "uuid": own,
                "timestamp": seed.at,
                "userType": "external",
                "cwd": seed.cwd,
                "sessionId": seed.native_session_id,
            })  # fmt: skip
            parent = own

    def _marked(self, block: HistoryBlock) -> Frame:
        marked = self._marks_caches and not isinstance(block, HistoryThinking) and block.cache
        return _block(block) | ({"cache_control": {"type": "ephemeral"}} if marked else {})


def _of_the_model(content: Any, model: str | None) -> Frame:
    """Return the model of an answer. claude sends thinking only to the model that is named here."""
    called = not isinstance(content, str) and any(block["type"] == "tool_use" for block in content)
    return {
        "type": "message",
        **({"model": model} if model is not None else {}),
        "stop_reason": "tool_use" if called else "end_turn",
    }


def _block(block: HistoryBlock) -> Frame:
    """Return a block in the form of the Messages API."""
    if isinstance(block, HistoryText):
        return {"type": "text", "text": block.text}
    if isinstance(block, HistoryThinking):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if isinstance(block, HistoryImage):
        return {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": block.data}}
    if isinstance(block, HistoryToolUse):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    content = (
        block.content
        if isinstance(block.content, str)
        else [_block(part) for part in block.content if not is_blank(part)]
    )
    failed = {"is_error": True} if block.is_error else {}
    return {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content, **failed}


def project_folder(cwd: str) -> str:
    """Return the CLI's folder below `projects` for a directory. The CLI counts in UTF-16, as JavaScript does."""
    units = memoryview(cwd.encode("utf-16-le", "surrogatepass")).cast("H")
    name = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(name) <= _FOLDER_LIMIT:
        return name
    total = 0
    for unit in units:
        total = (total * 31 + unit) & 0xFFFFFFFF
    return f"{name[:_FOLDER_LIMIT]}-{_base36(abs(total - (total >> 31 << 32)))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def read_message(entry: Frame) -> tuple[str, str]:
    """Return role and text of a transcript's entry."""
    return entry["type"], "\n".join(texts_of(entry["message"].get("content")))


# Processes with an open session

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

    def lock(self, directory: str, native_session_id: str) -> str | None:
        return None

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
