"""Names of MCP tools for an API. Pure.

Events and rules name a tool `mcp__SERVER__TOOL`, as claude does. An API accepts at most 64 letters, digits, `_` and `-`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

MAX_NAME = 64
"""Limit of OpenAI's APIs. Anthropic's limit is 128."""

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def full_name(server: str, tool: str) -> str:
    """Return a tool's name for events and rules."""
    return f"mcp__{server}__{tool}"


def api_names(names: Iterable[str]) -> dict[str, str]:
    """Return the API's name for each full name: the same name if the API accepts it, else a shortened one."""
    found: dict[str, str] = {}
    for name in names:
        plain = _FORBIDDEN.sub("_", name)
        if plain != name or len(name) > MAX_NAME:
            mark = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
            plain = f"{plain[: MAX_NAME - len(mark) - 1]}_{mark}"
        found[name] = plain
    return found
