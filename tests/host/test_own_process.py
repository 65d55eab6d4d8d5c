"""The daemon's own process: hardened, and with resources that agree with psutil's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from clisup.host.process.own_process import machine_memory, open_descriptors, resident_bytes

MIB = 1024 * 1024
HARDENED = """
import ctypes, json, os, resource, signal
from clisup.host.process.own_process import harden
harden()
code = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {}), 0)[1])
print(json.dumps({
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "umask": os.umask(0),
    "cwd": os.getcwd(),
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, set())),
    "sigchld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "sigpipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
    "code": code,
}))
"""


def hardened(**options: Any) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", HARDENED], capture_output=True, check=True, **options)
    return dict(json.loads(done.stdout))


def test_a_hardened_daemon_is_undumpable_private_and_writes_no_core() -> None:
    said = hardened()
    assert (said["dumpable"], said["core"], said["umask"], said["cwd"]) == (0, [0, 0], 0o077, "/")
    assert said["files"][0] >= min(said["files"][1], 65_536) > 0


@pytest.mark.fault(17)
def test_inherited_oddities_are_undone_and_exit_codes_are_right() -> None:
    strange = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD}); os.umask(0);"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    )
    done = subprocess.run([sys.executable, "-c", strange, HARDENED], capture_output=True, check=True)
    said = json.loads(done.stdout)
    assert (said["mask"], said["sigchld"], said["sigpipe"], said["code"]) == ([signal.SIGHUP], True, True, 7)


def test_resident_memory_is_that_of_this_process() -> None:
    before = resident_bytes()
    ballast = b"x" * (64 * MIB)
    assert resident_bytes() - before > 60 * MIB and len(ballast)
    assert abs(resident_bytes() - psutil.Process().memory_info().rss) < 4 * MIB


def test_open_descriptors_are_counted_without_the_one_that_counts() -> None:
    before = open_descriptors()
    assert before == psutil.Process().num_fds() - 1  # it counts that one
    ends = os.pipe()
    assert open_descriptors() == before + 2
    for fd in ends:
        os.close(fd)


def test_the_machines_memory_is_all_that_it_has() -> None:
    assert machine_memory() == psutil.virtual_memory().total
