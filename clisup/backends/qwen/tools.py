"""Error of an MCP tool, from the sentence that qwen makes for the model (0.24.4). Pure."""

from __future__ import annotations

import json
import re

__all__ = ["own_words"]

_BEGIN = re.compile(r"MCP tool '.*?' reported tool error for function call: ")
_BEHIND_THE_CALL = " with response: "
_JSON = json.JSONDecoder()


def own_words(content: str) -> str:
    """Return the texts of the tool's own result. Content without such a sentence, or with a cut one, stays unchanged."""
    begin = _BEGIN.match(content)
    if begin is None:
        return content
    try:
        _, end = _JSON.raw_decode(content, begin.end())
        (response,) = json.loads(content[end:].removeprefix(_BEHIND_THE_CALL))
        parts = response["functionResponse"]["response"]["content"]
        return "\n".join(part["text"] for part in parts if part["type"] == "text") or content
    except (ValueError, LookupError, TypeError, RecursionError):
        return content
