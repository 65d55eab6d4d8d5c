"""A few turns of the soak in the ordinary suite, and the proof that its figures see what they are to see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.soak import run
from tests.soak.sample import Sample, sample
from tests.soak.turns import _PLAN, SCRIPTS

QUIET = Sample(turns=10, seconds=1.0, rss_mb=50.0, fds=20, threads=5, zombies=0, keepers=0)


@pytest.mark.fault(19)
def test_turns_of_every_kind_leave_no_zombie_no_file_and_no_keeper(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.soak(40, warm_up=20, rss_promise_mb=30) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "turns 40 zombies 0 fd_growth 0" in said and "leftovers 0" in said


def test_every_kind_of_turn_is_in_the_plan() -> None:
    assert set(_PLAN) == set(SCRIPTS)


@pytest.mark.parametrize(
    ("last", "counted", "trouble"),
    [
        (QUIET._replace(zombies=1), 10, []),
        (QUIET._replace(keepers=1), 10, []),
        (QUIET._replace(fds=21), 10, []),
        (QUIET._replace(rss_mb=55.0), 10, []),
        (QUIET, 9, []),
        (QUIET, 10, ["a wrong outcome"]),
    ],
)
def test_each_broken_promise_fails_the_run(last: Sample, counted: int, trouble: list[str]) -> None:
    assert run.verdict([QUIET, last], {"completed": counted}, run.Trouble(wrong=trouble), 5.0) == 1
    assert run.verdict([QUIET, QUIET], {"completed": 10}, run.Trouble(), 5.0) == 0


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """It has a zombie, a child that lives, and a file more than the usual three."""
    code = """
import os, sys, time
if (pid := os.fork()) == 0: os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
if os.fork() == 0: time.sleep(600)
file = open("/dev/null")
print("ready", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def test_a_sample_counts_zombies_living_children_and_files(parent: subprocess.Popen[bytes]) -> None:
    seen = sample(parent.pid, 7, 1.0)
    assert (seen.turns, seen.zombies, seen.keepers, seen.threads) == (7, 1, 1, 1)
    assert seen.fds == 4 and seen.rss_mb > 1
