"""Message inside an API's error. Some CLIs print the JSON that they received."""

from __future__ import annotations

from clisup.backends.claude.frames import decode_any
from clisup.backends.frames import get_dict, get_str

__all__ = ["plain_words"]


def plain_words(text: str) -> str:
    """Return the message of an API's error body, or the text itself if it is no such JSON."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        body = decode_any(text.encode())
    except (ValueError, RecursionError):
        return text
    if not isinstance(body, dict):
        return text
    told = (
        get_str(get_dict(body, "error"), "message"),
        *(get_str(body, name) for name in ("message", "detail", "error")),
    )
    return next((words for words in told if words and words.strip()), text)
