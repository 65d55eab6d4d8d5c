"""Evidence about a prompt in claude's own transcript, for a turn whose end the daemon has not seen. Pure.

A transcript has JSON lines (2.1.329). A `user` entry holds the prompt as a string or as text blocks. An `assistant` entry after it
is the model's answer. A killed CLI leaves an incomplete last line, which claude ignores, too.
"""

from __future__ import annotations

import json
from typing import Any

from clisup.backends.base import TranscriptWord
from clisup.backends.transcripts import find_prompt

__all__ = ["transcript_says"]


def transcript_says(appended: bytes, prompt: str) -> TranscriptWord:
    """Tell whether the appended lines hold the prompt, and an answer after it."""
    entries = (_entry(line) for line in appended.splitlines())
    return find_prompt(((str(entry.get("type")), _text(entry)) for entry in entries), [prompt], answerer="assistant")


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _text(entry: dict[str, Any]) -> str:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(
        str(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"
    )
