"""A look at a process tree: what counts as work, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from clisup.host.evidence import Evidence, look

LIMIT_S = 20.0


@pytest.fixture
def tree() -> Iterator[Callable[[str], None]]:
    """Starts `sh -c` commands below this process, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str) -> None:
        started.append(subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.DEVNULL, start_new_session=True))

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


def grows(limit: float = LIMIT_S) -> bool:
    """Does this process's tree work, at some moment within the limit?"""
    first, until = look(os.getpid()), time.monotonic() + limit
    while time.monotonic() < until:
        if look(os.getpid()).grew_since(first):
            return True
        time.sleep(0.05)
    return False


def test_a_sleeping_tool_shows_no_work(tree: Callable[[str], None]) -> None:
    tree("sleep 60")
    settled = look(os.getpid())
    while (again := look(os.getpid())).members != settled.members or again.io_bytes != settled.io_bytes:
        settled = again  # the shell has just been starting
        time.sleep(0.1)
    assert not look(os.getpid()).grew_since(again)


@pytest.mark.parametrize("command", ["while :; do :; done", "dd if=/dev/zero of=/dev/null bs=64k"])
def test_cpu_and_io_are_work(tree: Callable[[str], None], command: str) -> None:
    tree(command)
    assert grows()


def test_a_new_process_is_work(tree: Callable[[str], None]) -> None:
    first = look(os.getpid())
    tree("sleep 60")
    assert look(os.getpid()).grew_since(first)


def test_a_tree_that_is_gone_is_an_empty_look() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    for pid in (done.pid, None):
        seen = look(pid)
        assert (seen.processes, seen.cpu_s, seen.io_bytes) == (0, 0.0, 0)


def test_what_is_said_of_a_look_holds_figures_and_no_command_line() -> None:
    seen = Evidence(2, 1.239, 10, 99, 0.0, frozenset({(1, 1.0)}))
    assert seen.words() == {"processes": 2, "cpu_s": 1.24, "io_bytes": 10}
