"""What the daemon says of itself agrees with psutil, which it does without."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from clisup.host.process import own_process
from clisup.host.process.own_process import give_back_memory, machine_memory, open_descriptors, resident_bytes

MIB = 1024 * 1024


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


def test_memory_that_is_free_below_a_block_in_use_is_given_back() -> None:
    """A fresh process: in ours, other tests' blocks may lie anywhere."""
    code = """
from clisup.host.process.own_process import give_back_memory, resident_bytes
blocks = [bytes(2000) for _ in range(20_000)]  # above what Python itself manages, below what comes with a mapping of its own
last = bytes(2000)
full = resident_bytes()
del blocks
give_back_memory()
print(full - resident_bytes())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) > 35_000_000


def test_a_c_library_that_cannot_give_back_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process.ctypes, "CDLL", lambda _name: object())
    give_back_memory()
