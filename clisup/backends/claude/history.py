"""History of a caller as a session file of claude, from which a resume goes on (2.1.329). Pure.

Measured: the API gets each message unchanged. The CLI sends its own words about the machine with the first new prompt. A line needs
`type`, `uuid`, `parentUuid`, `timestamp` and `message.content`, as compact JSON. The CLI merges adjacent user messages. It leaves
out blank texts and the images of failed results, which an API refuses.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from clisup.backends.seeds import Seed
from clisup.model.prompts.history import (
    HistoryBlock,
    HistoryImage,
    HistoryText,
    HistoryThinking,
    HistoryToolUse,
    is_blank,
    sendable,
)

__all__ = ["ClaudeSeed", "config_directory", "project_folder"]

_FOLDER_LIMIT = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClaudeSeed:
    """Rules of a history, for claude and for backends with the same transcripts.

    With `marks_caches`, the file keeps the caller's cache marks (`cache_control`). claude sets its own.
    """

    marks_caches = False

    def home(self, env: Mapping[str, str]) -> str | None:
        """Return the directory with the CLI's `projects`, or None if the environment does not tell."""
        return config_directory(env)

    def path(self, native_session_id: str, cwd: str, env: Mapping[str, str]) -> str | None:
        """Return the CLI's own path for a session of this id that begins in `cwd`, a real path."""
        home = self.home(env)
        return f"{home}/projects/{project_folder(cwd)}/{native_session_id}.jsonl" if home is not None else None

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file, each with its newline. The same seed gives the same bytes."""
        parent: str | None = None
        for number, (role, said) in enumerate(sendable(seed.history)):
            content = said if isinstance(said, str) else [self._marked(block) for block in said]
            message: dict[str, Any] = {"role": role, "content": content}
            if role == "assistant":
                message |= _of_the_model(content, seed.model)
            own = str(uuid.uuid5(uuid.UUID(seed.native_session_id), f"history/{number}"))
            yield _compact({
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

    def _marked(self, block: HistoryBlock) -> dict[str, Any]:
        marked = self.marks_caches and not isinstance(block, HistoryThinking) and block.cache
        return _block(block) | ({"cache_control": {"type": "ephemeral"}} if marked else {})


def _of_the_model(content: Any, model: str | None) -> dict[str, Any]:
    """Return the model of an answer. claude sends thinking only to the model that is named here."""
    called = not isinstance(content, str) and any(block["type"] == "tool_use" for block in content)
    return {
        "type": "message",
        **({"model": model} if model is not None else {}),
        "stop_reason": "tool_use" if called else "end_turn",
    }


def _block(block: HistoryBlock) -> dict[str, Any]:
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


def _compact(entry: dict[str, Any]) -> bytes:
    """Return JSON in which half a surrogate pair, impossible in UTF-8, stays an escape."""
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def config_directory(env: Mapping[str, str]) -> str | None:
    """Return claude's own directory: `CLAUDE_CONFIG_DIR`, else `.claude` in HOME."""
    home = env.get("HOME")
    config = env.get("CLAUDE_CONFIG_DIR") or (f"{home}/.claude" if home else None)
    return config.rstrip("/") if config is not None else None


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
