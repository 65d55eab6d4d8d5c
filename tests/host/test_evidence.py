"""A look at a process tree: what counts as work, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from clisup.host.evidence import Evidence, look

LIMIT_S = 20.0


class Tree:
    """A process of its own as the root: what else this one has below it, daemons of other tests, has nothing to do with it."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def start(self, command: str) -> None:
        """Run it below the root; it is there when this returns."""
        before = self.look().members
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command} &\n".encode())
        self._shell.stdin.flush()
        until = time.monotonic() + LIMIT_S
        while self.look().members <= before:
            assert time.monotonic() < until
            time.sleep(0.01)

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
    settled = tree.look()
    while (again := tree.look()).members != settled.members or again.io_bytes != settled.io_bytes:
        settled = again  # it has just been starting
        time.sleep(0.1)
    assert not tree.look().grew_since(again)


@pytest.mark.parametrize("command", ["while :; do :; done", "dd if=/dev/zero of=/dev/null bs=64k"])
def test_cpu_and_io_are_work(tree: Tree, command: str) -> None:
    tree.start(command)
    assert tree.grows()


def test_a_new_process_is_work(tree: Tree) -> None:
    first = tree.look()
    tree.start("exec sleep 60")
    assert tree.look().grew_since(first)


def test_a_tree_that_is_gone_is_an_empty_look() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    for pid in (done.pid, None):
        seen = look(pid)
        assert (seen.processes, seen.cpu_s, seen.io_bytes) == (0, 0.0, 0)


def test_what_is_said_of_a_look_holds_figures_and_no_command_line() -> None:
    seen = Evidence(2, 1.239, 10, 99, 0.0, frozenset({(1, 1.0)}))
    assert seen.words() == {"processes": 2, "cpu_s": 1.24, "io_bytes": 10}
