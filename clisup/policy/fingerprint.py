"""Fingerprint of a live process: digests of its start parameters ("parts"). Pure.

If the next turn needs a different part, the turn needs another process. The parts are digests, so that a
fingerprint can lie on disk: the environment holds credentials.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from clisup.model.prompts.options import schema_text

_CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE")
_WORDS = {
    "command": "the command or its version",
    "model": "the model",
    "permission_mode": "the permission mode",
    "arguments": "an argument",
    "system_prompt": "the system prompt",
    "mcp": "the set of MCP servers",
    "output_schema": "the output schema",
    "credential": "a credential",
    "environment": "the environment",
    "limits": "its limits",
}


def fingerprint(
    *,
    command: Sequence[str],
    version: str | None,
    arguments: Sequence[str],
    model: str | None,
    permission_mode: str | None,
    system_prompt: str | None,
    mcp: str | None,
    environment: Mapping[str, str],
    limits: object,
    output_schema: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return a digest for each part.

    `arguments` are the adapter's own, without arguments that name the session. `limits` are all limits of the process's
    keeper and run that are fixed at the start.
    """
    credentials = {name: value for name, value in environment.items() if _CREDENTIAL.search(name)}
    rest = {name: value for name, value in environment.items() if name not in credentials}
    parts: dict[str, object] = {
        "command": (list(command), version),
        "model": model,
        "permission_mode": permission_mode,
        "arguments": list(arguments),
        "system_prompt": system_prompt,
        "mcp": mcp,
        "credential": sorted(credentials.items()),
        "environment": sorted(rest.items()),
        "limits": limits,
    }
    # without a schema the fingerprint stays as in older versions, so that an upgrade ends no process
    if output_schema is not None:
        parts["output_schema"] = schema_text(output_schema)
    return {name: digest(part) for name, part in parts.items()}


def digest(part: object) -> str:
    """Return the digest of one part."""
    return hashlib.sha256(repr(part).encode("utf-8", "surrogateescape")).hexdigest()


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of the differing parts, in words. A part on only one side counts as different."""
    return [word for name, word in _WORDS.items() if one.get(name) != other.get(name)]
