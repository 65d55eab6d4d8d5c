"""Capacity: how many CLIs and connections the limits of this process and of its cgroups allow.

A shortage ends turns of whoever asks next (`clisup.host.shortage`). Below its capacity the daemon meets none: turns wait.
"""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from clisup.host.process.cgroups import own_limit
from clisup.host.process.own_process import NOFILE_WANTED, machine_memory

__all__ = ["BYTES_PER_CLI", "Capacity", "connections_at_once", "file_size_limit", "live_at_once", "turns_at_once"]

BYTES_PER_CLI = 300 * 1024 * 1024  # claude 2.1.329 takes 160-230 MB, and its tools take more
TASKS_PER_CLI = 16  # threads count: node and bun start a dozen
DESCRIPTORS_PER_CLI = 6  # of the daemon: four while the CLI runs, more while it starts
OWN_DESCRIPTORS = 32  # of the daemon itself: 15 at rest, and those of looks at processes and files
LEAST_CONNECTIONS = 8


class Capacity(NamedTuple):
    """Number of turns at once, and the resource that bounds it."""

    turns: int
    resource: str


def turns_at_once(wanted: int) -> Capacity:
    """Return the capacity for turns, at least 1. `wanted` is `daemon.max_running`; 0 asks for as many as there is room for.

    A set number counts more than the estimates of memory and processes. Descriptors are the daemon's own, and it knows them.
    """
    found = {"open files": (_descriptors() - OWN_DESCRIPTORS) // 2 // DESCRIPTORS_PER_CLI}
    if wanted:
        found["daemon.max_running"] = wanted
    else:
        found["memory"] = min(machine_memory(), own_limit("memory.max") or machine_memory()) // BYTES_PER_CLI
        if (tasks := _tasks()) is not None:
            found["processes"] = tasks // 2 // TASKS_PER_CLI  # the other half is for other programs
    name = min(found, key=found.__getitem__)
    return Capacity(max(1, found[name]), name)


def live_at_once(wanted: int) -> int:
    """Return the limit of live processes: `daemon.max_live`, or less for want of descriptors."""
    return min(wanted, turns_at_once(wanted).turns)


def connections_at_once(wanted: int) -> int:
    """Return the limit of connections of one user: `daemon.max_connections`, or less for want of descriptors."""
    return min(wanted, max(LEAST_CONNECTIONS, (_descriptors() - OWN_DESCRIPTORS) // 3))


def file_size_limit() -> int | None:
    """Return the limit of a file's size in bytes (RLIMIT_FSIZE), or None without a limit. CLIs inherit it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


def _descriptors() -> int:
    """Return the descriptors of a daemon, which raises its limit as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NOFILE_WANTED if hard == resource.RLIM_INFINITY else min(hard, NOFILE_WANTED)


def _tasks() -> int | None:
    """Return the least limit of processes and threads, or None without a limit. The kernel does not count root's."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [] if soft == resource.RLIM_INFINITY or os.geteuid() == 0 else [soft]
    limits += [] if (tasks := own_limit("pids.max")) is None else [tasks]
    return min(limits, default=None)
