"""A look at a process tree: what counts as work, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from clisup.host.process.evidence import Evidence, Work, look, tree_memory

LIMIT_S = 20.0


class Tree:
    """A process of its own as the root: what else this one has below it, daemons of other tests, has nothing to do with it."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def start(self, command: str) -> int:
        """Run it below the root; it is there when this returns. Gives its pid."""
        before = self.look().members.keys()
        self._say(f"{command} &")
        until = time.monotonic() + LIMIT_S
        while not (new := self.look().members.keys() - before):
            assert time.monotonic() < until
            time.sleep(0.01)
        return new.pop()[0]

    def kill(self, pid: int) -> None:
        """And have its parent take notice."""
        os.kill(pid, signal.SIGKILL)
        self._say(f"wait {pid}")

    def _say(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\n".encode())
        self._shell.stdin.flush()

    def look(self) -> Evidence:
        return look(self._shell.pid)

    def grows(self) -> bool:
        """Does it work, at some moment within the limit?"""
        first, until = self.look(), time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if self.look().grew_since(first):
                return True
            time.sleep(0.05)
        return False

    def end(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()


@pytest.fixture
def tree() -> Iterator[Tree]:
    made = Tree()
    yield made
    made.end()


def test_a_sleeping_tool_shows_no_work(tree: Tree) -> None:
    tree.start("exec sleep 60")
    earlier, until = tree.look(), time.monotonic() + LIMIT_S
    while (later := tree.look()).grew_since(earlier):  # on a busy machine it may take a while to start
        assert time.monotonic() < until
        earlier = later
        time.sleep(0.1)


@pytest.mark.parametrize("command", ["while :; do :; done", "dd if=/dev/zero of=/dev/null bs=64k"])
def test_cpu_and_io_are_work(tree: Tree, command: str) -> None:
    tree.start(command)
    assert tree.grows()


def test_a_new_process_is_work(tree: Tree) -> None:
    first = tree.look()
    tree.start("exec sleep 60")
    assert tree.look().grew_since(first)


def test_work_of_the_others_counts_where_a_process_that_had_done_more_has_left() -> None:
    begun = Evidence(99, 0.0, {(1, 1.0): Work(1440.0, 9000), (2, 1.0): Work(10.0, 50)})
    assert Evidence(99, 360.0, {(2, 1.0): Work(370.0, 50)}).grew_since(begun)
    assert Evidence(99, 360.0, {(2, 1.0): Work(10.0, 51)}).grew_since(begun)
    assert not Evidence(99, 360.0, {(2, 1.0): Work(10.01, 50)}).grew_since(begun)


def test_the_work_of_one_shows_where_another_has_left(tree: Tree) -> None:
    busy = tree.start("exec dd if=/dev/zero of=/dev/null bs=64k")
    tree.start("while :; do :; done")
    until = time.monotonic() + LIMIT_S
    while (before := tree.look()).io_bytes < 2**30:
        assert time.monotonic() < until
    tree.kill(busy)
    while (now := tree.look()).io_bytes >= before.io_bytes or not now.grew_since(before):
        assert time.monotonic() < until


def test_a_tree_that_is_gone_is_an_empty_look() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    for pid in (done.pid, None):
        seen = look(pid)
        assert (seen.processes, seen.cpu_s, seen.io_bytes) == (0, 0.0, 0)


def test_what_is_said_of_a_look_holds_figures_and_no_command_line() -> None:
    seen = Evidence(99, 0.0, {(1, 1.0): Work(1.0, 4), (2, 1.0): Work(0.239, 6)})
    assert seen.words() == {"processes": 2, "cpu_s": 1.24, "io_bytes": 10}


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
