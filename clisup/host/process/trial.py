"""Trial start: a process of its own checks whether a daemon with the present code and configuration would start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import trio

from clisup.host.process.carrying import CarriedEnvironment, carried_file, clean_environment

TRIAL_LIMIT_S = 30.0
_WORDS = 2000  # limit of characters kept from the output


class TrialRefusal(NamedTuple):
    """Reason why a daemon would not start: its message without the frame, its hint, and its exit code.

    The exit code is None if the daemon hung.
    """

    reason: str
    hint: str
    code: int | None


async def try_start(argv: Sequence[str], carried: CarriedEnvironment) -> TrialRefusal | None:
    """Return None if `clisup ARGV --check` succeeds, with the environment that a successor would get."""
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
            return None if done.returncode == 0 else refusal(done.stdout, done.returncode)
    finally:
        os.close(fd)
    return TrialRefusal(f"it did not answer within {TRIAL_LIMIT_S:g} s", "", None)


def refusal(said: bytes, code: int) -> TrialRefusal:
    """Return the refusal of a failed command.

    `clisup.cli.failure` prints one line, and perhaps one line of hint.
    """
    text, _, hint = said[-_WORDS:].decode("utf-8", "replace").strip().partition("\n  hint: ")
    return TrialRefusal(text.removeprefix("clisup: ") or f"it ended with status {code}", hint, code)
