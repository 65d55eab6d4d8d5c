"""What the daemon says of itself agrees with psutil, which it does without."""

from __future__ import annotations

import os

import psutil

from clisup.host.process.own_process import machine_memory, open_descriptors, resident_bytes

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
