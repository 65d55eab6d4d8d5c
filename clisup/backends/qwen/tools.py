"""What an MCP tool said of its failure, out of the sentence that qwen makes of it for the model (0.24.4). Pure."""

from __future__ import annotations

import json
import re

__all__ = ["own_words"]

_BEGIN = re.compile(r"MCP tool '.*?' reported tool error for function call: ")
_BEHIND_THE_CALL = " with response: "
_JSON = json.JSONDecoder()


def own_words(content: str) -> str:
    """The texts of the tool's own result. The content as it is where it is no such sentence, or qwen has cut it."""
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
