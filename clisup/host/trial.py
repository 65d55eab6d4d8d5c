"""Would a daemon of the code and the configuration that are installed now start? Asked of a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import trio

from clisup.host.hardening import Carried, carried_file, clean_environment

__all__ = ["try_start"]

TRIAL_LIMIT_S = 30.0
_WORDS = 2000  # of what it says


async def try_start(argv: Sequence[str], carried: Carried) -> str | None:
    """None where `clisup ARGV --check` says yes, with what a successor would be given; else its last words."""
    command = [sys.executable, "-P", "-m", "clisup", *argv, "--check"]
    fd = carried_file(carried)
    try:
        with trio.move_on_after(TRIAL_LIMIT_S):
            done = await trio.run_process(
                command,
                env=clean_environment(carried.env, fd),
                pass_fds=(fd,),
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
                cwd="/",
            )
            text = done.stdout[-_WORDS:].decode("utf-8", "replace").strip()
            return None if done.returncode == 0 else text or f"it ended with status {done.returncode}"
    finally:
        os.close(fd)
    return f"it did not answer within {TRIAL_LIMIT_S:g} s"
