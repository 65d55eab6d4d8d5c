"""What an API calls the tools of MCP servers. Pure.

To everybody else a tool is `mcp__SERVER__TOOL`, as claude has it. An API takes at most 64 letters, digits, `_` and `-`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

__all__ = ["MAX_NAME", "api_names", "full_name"]

MAX_NAME = 64
"""The shorter limit of the APIs: that of OpenAI. Anthropic's is 128."""

_OTHERS = re.compile(r"[^A-Za-z0-9_-]")


def full_name(server: str, tool: str) -> str:
    """Return a tool's name as events and rules have it."""
    return f"mcp__{server}__{tool}"


def api_names(names: Iterable[str]) -> dict[str, str]:
    """Return the API's name of each full name: the same where the API takes it, else a short one of its own."""
    found: dict[str, str] = {}
    for name in names:
        plain = _OTHERS.sub("_", name)
        if plain != name or len(name) > MAX_NAME:
            mark = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
            plain = f"{plain[: MAX_NAME - len(mark) - 1]}_{mark}"
        found[name] = plain
    return found
