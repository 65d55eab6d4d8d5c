"""Kept prompt: the redacted words of a prompt for readers of the journal, and the title made of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from clisup.model.prompts.options import StoredPrompt
from clisup.model.structs import JsonObject

INLINE_TEXT = 16 * 1024
"""Most characters of a prompt in its `prompt_accepted`. A longer prompt has a blob."""

TITLE_CHARS = 80
"""Most characters of a title made from a prompt."""


class KeptPrompt(NamedTuple):
    """Redacted prompt. `blob` is the JSON array of all blocks, or None if `text` is the whole prompt."""

    text: str | None = None
    images: int = 0
    blob: bytes | None = None


def kept_prompt(prompt: StoredPrompt, redact: Callable[[str], str]) -> KeptPrompt:
    """Return the prompt without its secrets. Images stay as they are."""
    text = redact(prompt["text"])
    blocks: list[JsonObject] = [_block(block, redact) for block in prompt.get("content") or ()]
    images = sum(block["type"] == "image" for block in blocks)
    results = prompt.get("tool_results", ())
    if len(text) <= INLINE_TEXT and not images and not results:
        return KeptPrompt(text or None)
    blocks = blocks or ([{"type": "text", "text": text}] if text else [])
    blocks += [{"type": "tool_result", **_redacted(result, redact)} for result in results]
    return KeptPrompt(text[:INLINE_TEXT] or None, images, json.dumps(blocks, ensure_ascii=False).encode())


def _block(block: JsonObject, redact: Callable[[str], str]) -> JsonObject:
    if block["type"] == "image":
        return {name: block[name] for name in ("type", "media_type", "data")}
    return {"type": "text", "text": redact(block["text"])}


def _redacted(value: JsonObject, redact: Callable[[str], str]) -> JsonObject:
    """Return a tool's result with redacted texts."""
    content = value.get("content", "")
    told = redact(content) if isinstance(content, str) else [_block(block, redact) for block in content]
    return {**{name: value[name] for name in ("tool_use_id", "is_error") if name in value}, "content": told}


def title_of(text: str) -> str | None:
    """Return the first words of a prompt as one line, or None without a visible character."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text[: 10 * TITLE_CHARS]).split())
    if len(words) <= TITLE_CHARS:
        return words or None
    cut = words[: TITLE_CHARS - 1]
    head, space, _ = cut.rpartition(" ")
    return (head if space and len(head) > TITLE_CHARS // 2 else cut) + "…"
