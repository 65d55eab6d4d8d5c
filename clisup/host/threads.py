"""Calls in a thread, so that a slow disk delays no other task."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from clisup.host.shortage import overloaded

__all__ = ["THREAD_WAIT_S", "in_thread"]

THREAD_WAIT_S = 5.0
"""Seconds to wait for a thread while the system starts none, because a limit of processes or memory is reached."""

_AGAIN_S = 0.1
_NO_THREAD = "can't start new thread"  # CPython's words for a failed pthread_create(3)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_thread(
    call: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False, limiter: trio.CapacityLimiter | None = None
) -> T:
    """Return `call(*args)` from a thread. The options are those of `trio.to_thread.run_sync`.

    Raises `WorldError(overloaded)` if no thread can be started for `THREAD_WAIT_S`.
    """
    until = trio.current_time() + THREAD_WAIT_S
    while True:
        try:
            return await trio.to_thread.run_sync(call, *args, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
        except RuntimeError as error:
            if str(error) != _NO_THREAD:
                raise
        if trio.current_time() >= until:
            raise overloaded("start a thread", OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        await trio.sleep(_AGAIN_S)
