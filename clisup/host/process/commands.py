"""Commands of the user that the daemon runs for a message: input on stdin, a time limit, and an end for the whole tree."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from clisup.host.process.executables import PIPE_GRACE_S, CommandOutput
from clisup.host.process.keepers import wait_for_exit
from clisup.host.process.tree import sweep_marked

__all__ = ["MARK", "OUTPUT_LIMIT", "run_command"]

MARK = "CLISUP_NOTIFY_RUN"
"""Variable that marks a command and all processes that it starts."""
OUTPUT_LIMIT = 4096
"""Bytes of output that are kept. Further output is read and dropped."""
_CHUNK = 65536


async def run_command(argv: Sequence[str], env: Mapping[str, str], stdin: bytes, *, limit_s: float) -> CommandOutput:
    """Run a command in `/`, and return the head of its output. Raises `OSError` if it cannot be started.

    The exit code is None if the command was ended after `limit_s`. Whatever the command has started ends with it, also
    what has left its process group.
    """
    mark = uuid.uuid4().hex
    process = await trio.lowlevel.open_process(
        list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**env, MARK: mark}, cwd="/", start_new_session=True,
    )  # fmt: skip
    said, exited = bytearray(), False
    try:
        with trio.move_on_after(limit_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, process, stdin)
                nursery.start_soon(_collect, process, said)
                await wait_for_exit(process.pid)
                exited = True
                nursery.cancel_scope.deadline = trio.current_time() + PIPE_GRACE_S
    finally:
        with trio.CancelScope(shield=True):
            with suppress(OSError):  # a set-uid command may not be killed by us
                os.killpg(process.pid, signal.SIGKILL)  # the leader is not reaped, so the group is its own
            await process.wait()
            await sweep_marked(f"{MARK}={mark}")
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()
    return CommandOutput(bytes(said).decode("utf-8", "replace"), process.returncode if exited else None)


async def _feed(process: trio.Process, data: bytes) -> None:
    assert process.stdin is not None
    try:
        await process.stdin.send_all(data)
    except trio.BrokenResourceError:  # a command need not read
        pass
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()


async def _collect(process: trio.Process, said: bytearray) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.receive_some(_CHUNK):
        said += chunk[: OUTPUT_LIMIT - len(said)]
