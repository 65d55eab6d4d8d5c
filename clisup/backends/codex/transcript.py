"""Evidence about a prompt in codex's own transcript, for a turn whose end the daemon has not seen. Pure.

A rollout file has JSON lines (0.169.0). A `response_item` of the user holds the prompt. One of the assistant after it is the
model's answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

from clisup.backends.base import TranscriptWord
from clisup.backends.frames import get_dict
from clisup.backends.transcripts import find_prompt

__all__ = ["transcript_says"]

_IMAGE_TAG = re.compile(r'<image name=\[Image #\d+\] path="[^"]*">|</image>')  # around an image that came as a file


def transcript_says(appended: bytes, prompt: str) -> TranscriptWord:
    """Tell whether the appended lines hold the prompt, and an answer after it."""
    messages = (_message(line) for line in appended.splitlines())
    return find_prompt(((str(said.get("role")), _text(said)) for said in messages), [prompt], answerer="assistant")


def _message(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(entry, dict) or entry.get("type") != "response_item":
        return {}
    item = get_dict(entry, "payload")
    return item if item.get("type") == "message" else {}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = (str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)
    return "\n".join(text for text in texts if not _IMAGE_TAG.fullmatch(text))
