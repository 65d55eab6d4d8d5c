"""Shortage of descriptors, processes, memory or buffers.

A shortage says nothing about a disk, a CLI or a protocol. It passes, so every error of it is `overloaded` and retryable.
"""

from __future__ import annotations

import errno
import os

from clisup.errors import ClisupError, WorldError
from clisup.model.shortages import SHORTAGES

__all__ = ["is_shortage", "overloaded", "raise_shortage", "shortage_of"]

_RAISE = {
    errno.EMFILE: "raise the daemon's limit of open files (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
    errno.EAGAIN: "raise the limit of processes (ulimit -u, TasksMax=)",
    errno.ENOMEM: "free memory, or raise the daemon's memory limit (MemoryMax=)",
    errno.ENOBUFS: "free memory: the kernel has no buffers left",
}


def is_shortage(number: int | None) -> bool:
    """Tell whether an errno names a shortage. No caller asks about non-blocking files."""
    return number in SHORTAGES


def raise_shortage(error: OSError) -> None:
    """Raise an error again if it is a shortage: what cannot be looked at for want of a descriptor may still be there."""
    if is_shortage(error.errno):
        raise error


def shortage_of(error: BaseException) -> ClisupError | None:
    """Return the `overloaded` error if an exception, its cause or a member of its group comes from a shortage, else None."""
    if isinstance(error, ClisupError):
        return error if error.kind == "overloaded" else None
    if isinstance(error, MemoryError):
        return overloaded("go on", OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    if isinstance(error, OSError) and is_shortage(error.errno):
        return overloaded("go on", error)
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else (error.__cause__,)
    return next((found for other in inner if other is not None and (found := shortage_of(other))), None)


def overloaded(what: str, error: OSError) -> WorldError:
    """Return the error for something that the daemon could not do for want of a resource."""
    reason = error.strerror or os.strerror(error.errno or errno.EAGAIN)
    hint = _RAISE.get(error.errno or 0, _RAISE[errno.EAGAIN])
    return WorldError(
        f"overloaded: cannot {what}: {reason}",
        kind="overloaded",
        hint=f"try again; {hint}",
        errno=error.errno or 0,
        retry_after_s=1,
    )
