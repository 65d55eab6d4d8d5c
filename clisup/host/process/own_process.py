"""What this process takes and what the machine has, from /proc: psutil, which can tell it too, takes 30 ms to import."""

from __future__ import annotations

import ctypes
import os

__all__ = ["give_back_memory", "machine_memory", "open_descriptors", "resident_bytes"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split(None, 2)[1]) * _PAGE


def open_descriptors() -> int:
    """How many file descriptors this process has open."""
    return len(os.listdir("/proc/self/fd")) - 1  # without the one that reads it


def give_back_memory() -> None:
    """Give back to the system what is free on the heap; the C library keeps what lies below the last block in use.

    Takes 0.4 ms for the 3 MB of a start. Does nothing where the C library has no such call (musl).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def machine_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE
