"""Calls in threads where the system starts no thread: under a real limit of processes, in a process of another user."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import trio

from clisup.errors import WorldError
from clisup.host import threads
from clisup.host.threads import in_thread

NOBODY = 65534
BEGIN = f"""
import os, resource, trio
from clisup.errors import WorldError
from clisup.host import threads
from clisup.host.threads import in_thread

most = resource.getrlimit(resource.RLIMIT_NPROC)[1]

def limit(processes):
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, most))

limit(1)
if os.getuid() == 0:  # the limit does not hold for root
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""


def said(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_a_call_waits_for_a_thread_while_the_limit_of_processes_is_reached() -> None:
    program = """
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        print(await in_thread(pow, 2, 5))

async def later():
    await trio.sleep(3 * threads._AGAIN_S)
    print("more")
    limit(most)

trio.run(main)
"""
    assert said(program) == ["more", "32"]


def test_a_call_without_a_thread_in_time_is_overloaded_and_may_be_repeated() -> None:
    program = """
threads.THREAD_WAIT_S = 0.3
async def main():
    try:
        await in_thread(pow, 2, 5)
    except WorldError as error:
        print(error.kind, error.to_wire()["data"]["retryable"], error.message)

trio.run(main)
"""
    assert said(program) == [f"overloaded True overloaded: cannot start a thread: {os.strerror(11)}"]


async def test_an_error_of_the_call_itself_comes_at_once() -> None:
    def fail() -> None:
        raise RuntimeError("the call is wrong")

    with pytest.raises(RuntimeError, match="the call is wrong"):
        await in_thread(fail)


async def test_a_call_that_is_abandoned_ends_with_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_of: object, **_named: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", none_left)
    monkeypatch.setattr(threads, "THREAD_WAIT_S", 600.0)
    with trio.move_on_after(0.05) as scope:
        await in_thread(os.getpid, abandon_on_cancel=True)
    assert scope.cancelled_caught
    monkeypatch.setattr(threads, "THREAD_WAIT_S", 0.0)
    with pytest.raises(WorldError):
        await in_thread(os.getpid)
