"""Values that are secret by the name before them: `--api-key VALUE`, `--token=VALUE`, `https://user:password@host`.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["secret_arguments"]

_NAMED = re.compile(
    r"(?i)^-{0,2}[a-z0-9_.-]*(key|token|secret|passw|auth|credential|cookie|header)[a-z0-9_.-]*(?:[=:](.+))?$",
    re.DOTALL,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


def secret_arguments(words: Iterable[str]) -> list[str]:
    """Return the words and parts of a command line that must not be shown."""
    found: list[str] = []
    named = False
    for word in words:
        match = _NAMED.match(word)
        if named and not word.startswith("--"):
            found.append(word)
        if match and match[2]:
            found.append(match[2].strip())
        named = bool(match) and not (match and match[2]) and word.startswith("-")
        found += _IN_URL.findall(word)
    return found
