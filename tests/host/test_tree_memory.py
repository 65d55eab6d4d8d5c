"""The memory of process trees, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from clisup.host.process.evidence import tree_memory

GROWN = 40 * 1024 * 1024
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "held = bytearray({GROWN}); print(1, flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
child.communicate(b"go\\n")
"""


@pytest.fixture
def parent() -> Iterator[tuple[int, int]]:
    """A process whose only child holds 40 MiB: (its pid, the child's)."""
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.pid, int(process.stdout.readline())
    process.communicate("go\n")


def test_it_is_the_sum_below_the_root_without_the_root(parent: tuple[int, int]) -> None:
    root, child = parent
    found = tree_memory([root])[root]
    assert found > GROWN
    assert abs(found - psutil.Process(child).memory_info().rss) < GROWN / 4


def test_grandchildren_count_and_each_root_has_its_own_sum(parent: tuple[int, int]) -> None:
    root, child = parent
    found = tree_memory([os.getpid(), root, child])
    assert found[os.getpid()] > found[root] > GROWN
    assert found[child] == 0


def test_a_root_that_is_gone_takes_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert tree_memory([process.pid]) == {process.pid: 0}
    assert tree_memory([]) == {}
