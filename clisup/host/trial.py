"""Would a daemon of the code and the configuration that are installed now start? Asked of a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import trio

__all__ = ["try_start"]

TRIAL_LIMIT_S = 30.0
_WORDS = 2000  # of what it says


async def try_start(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """None where `clisup ARGV --check` says yes, else its last words."""
    command = [sys.executable, "-P", "-m", "clisup", *argv, "--check"]
    with trio.move_on_after(TRIAL_LIMIT_S):
        done = await trio.run_process(
            command, env=dict(env), capture_stdout=True, stderr=subprocess.STDOUT, check=False, cwd="/"
        )
        text = done.stdout[-_WORDS:].decode("utf-8", "replace").strip()
        return None if done.returncode == 0 else text or f"it ended with status {done.returncode}"
    return f"it did not answer within {TRIAL_LIMIT_S:g} s"
