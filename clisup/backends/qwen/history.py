"""History of a caller as a chat file of qwen, from which a resume goes on (0.24.4). Pure.

Measured: the API gets each message unchanged. The CLI puts reminders before the first message and the new prompt, and merges
adjacent user messages. Only the text of a failed result shows the error, because the API has no field for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from clisup.backends.frames import Frame
from clisup.backends.transcripts import Seed, json_line, own_directory
from clisup.model.prompts.history import (
    HistoryBlock,
    HistoryText,
    HistoryToolResult,
    HistoryToolUse,
    is_blank,
    sendable,
)

__all__ = ["QwenSeed", "base_directory"]

_ODD = re.compile(r"[^a-zA-Z0-9]")
_ROLES = {"user": "user", "tool_result": "user", "assistant": "model"}


class QwenSeed:
    """Rules of a history, without thinking: its signatures belong to another vendor's model."""

    def path(self, seed: Seed, env: Mapping[str, str]) -> str | None:
        """Return the CLI's only path for a session of this id that begins in `cwd`."""
        base = base_directory(env)
        name = f"{_folder(seed.cwd)}/chats/{seed.native_session_id}.jsonl"
        return f"{base}/projects/{name}" if base is not None else None

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file, each with its newline. The same seed gives the same bytes."""
        parent: str | None = None
        names: dict[str, str] = {}
        entries = (entry for role, said in sendable(seed.history) for entry in _entries(role, said, names))
        for number, (kind, parts) in enumerate(entries):
            own = seed.entry_id(number)
            yield json_line({
                "uuid": own,
                "parentUuid": parent,
                "sessionId": seed.native_session_id,
                "timestamp": seed.at,
                "type": kind,
                "cwd": seed.cwd,
                "message": {"role": _ROLES[kind], "parts": parts},
            })  # fmt: skip
            parent = own


def _entries(role: str, said: str | Sequence[HistoryBlock], names: dict[str, str]) -> Iterator[tuple[str, list[Frame]]]:
    """Yield a message as entries. Tool results form an entry of their own, before the texts."""
    blocks = [HistoryText(type="text", text=said)] if isinstance(said, str) else said
    answers = [_answer(block, names) for block in blocks if isinstance(block, HistoryToolResult)]
    if answers:
        yield "tool_result", answers
    if others := [part for block in blocks if (part := _part(block, names)) is not None]:
        yield role, others


def _part(block: HistoryBlock, names: dict[str, str]) -> Frame | None:
    if isinstance(block, HistoryText):
        return {"text": block.text}
    if isinstance(block, HistoryToolUse):
        names[block.id] = block.name
        return {"functionCall": {"id": block.id, "name": block.name, "args": block.input}}
    return None


def _answer(block: HistoryToolResult, names: Mapping[str, str]) -> Frame:
    parts = (
        []
        if isinstance(block.content, str)
        else [p for p in block.content if isinstance(p, HistoryText) and not is_blank(p)]
    )
    text = block.content if isinstance(block.content, str) else "\n".join(part.text for part in parts)
    response = {"error" if block.is_error else "output": text}
    return {"functionResponse": {"id": block.tool_use_id, "name": names[block.tool_use_id], "response": response}}


def base_directory(env: Mapping[str, str]) -> str | None:
    """Return qwen's own directory, or None if the environment names no absolute one."""
    base = own_directory(env, ".qwen", "QWEN_RUNTIME_DIR", "QWEN_HOME")
    return base if base is not None and base.startswith("/") else None


def _folder(cwd: str) -> str:
    """Return dashes for a character: two for two units in UTF-16, as JavaScript counts."""
    return _ODD.sub(lambda odd: "-" * (1 + (odd[0] > "\uffff")), cwd)
