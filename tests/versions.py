"""Versions of the real CLIs that the recordings come from and `make e2e` installs: `tests/e2e/clis/<name>/package.json`."""

from __future__ import annotations

import json
from pathlib import Path

CLIS = Path(__file__).parent / "e2e" / "clis"
PACKAGES = {
    "claude": "@anthropic-ai/claude-code-linux-x64",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "qwen": "@qwen-code/qwen-code",
}
"""CLI name to the npm package whose version is the CLI's version."""


def pinned(cli: str) -> str:
    """Return the pinned version of a CLI."""
    pins: dict[str, str] = json.loads((CLIS / cli / "package.json").read_text())["dependencies"]
    return pins[PACKAGES[cli]]


VERSIONS = {cli: pinned(cli) for cli in PACKAGES}
"""CLI name to the pinned version."""
RECORDED = {**VERSIONS, "codex-exec": VERSIONS["codex"]}
"""Backend kind to the version in whose folder the recordings stand: `tests/recordings/<kind>/<version>`."""
