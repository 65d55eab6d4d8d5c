"""A quick slice of the zoo, in the ordinary suite. `make zoo` plays all of it, a thousand times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.host.process.cgroups import CgroupHome
from tests.keeper.keeper_probe import KeeperProbe, eventually
from tests.zoo import animals
from tests.zoo.bystanders import Bystanders
from tests.zoo.cage import Cage, inside
from tests.zoo.rounds import METHODS, Outcome, Task, play

PROMISE_MS = {"walk": 2000, "cgroup": 2000}  # the 100 ms of a cgroup are measured by `make zoo`, on a quiet machine


def played(task: Task) -> Outcome:
    home = CgroupHome.find()
    if task.method == "cgroup" and not home.available:
        pytest.skip("no cgroup can be made here")
    return play(task, home)


@pytest.mark.fault(10)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", animals.KINDS)
def test_a_kill_leaves_nothing_and_names_what_it_killed(kind: str, method: str) -> None:
    outcome = played(Task(kind, "KILL", method))
    assert (outcome.missed, outcome.unnamed, outcome.faults) == (0, [], [])
    assert outcome.ms is not None and outcome.ms < PROMISE_MS[method]


@pytest.mark.fault(10)
@pytest.mark.fault(11)
@pytest.mark.fault(12)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["ignoring TERM", "stopped", "re-forking", "guard pair"])
def test_a_ladder_ends_a_stubborn_cli_and_its_animal(kind: str, method: str) -> None:
    outcome = played(Task(kind, "TERM", method, number=1))
    assert (outcome.missed, outcome.unnamed, outcome.faults) == (0, [], [])


@pytest.mark.fault(10)
@pytest.mark.fault(9)
@pytest.mark.fault(20)
@pytest.mark.parametrize("kind", ["cleared environment", "re-forking", "guard pair", "pipe holder"])
def test_what_a_cli_leaves_at_its_own_exit_is_killed_too(kind: str) -> None:
    outcome = played(Task(kind, "exit", "walk"))
    assert (outcome.missed, outcome.unnamed, outcome.faults) == (0, [], [])


@pytest.mark.fault(4)
@pytest.mark.parametrize("kind", animals.KINDS)
def test_a_killed_keeper_takes_its_cli_and_the_cgroup_takes_the_rest(kind: str) -> None:
    outcome = played(Task(kind, "keeper", "cgroup"))
    assert (outcome.missed, outcome.faults) == (0, [])
    assert outcome.host_ms is not None


@pytest.mark.fault(4)
@pytest.mark.parametrize(("kind", "missed"), [("setsid", 0), ("guard pair", 0), ("cleared environment", 1)])
def test_without_a_cgroup_the_marker_finds_all_but_a_cleared_environment(kind: str, missed: int) -> None:
    outcome = played(Task(kind, "keeper", "walk"))
    assert (outcome.missed, outcome.survivors, outcome.faults) == (missed, 0, [])


@pytest.mark.fault(7)
def test_neighbours_get_no_signal(tmp_path: Path) -> None:
    with Bystanders(tmp_path) as bystanders:
        for kind in ("re-forking", "many children", "own group"):
            played(Task(kind, "KILL", "walk"))
        assert bystanders.harmed() == []


def test_an_order_to_end_counts_though_its_sender_left_before_the_answer(tmp_path: Path) -> None:
    probe = KeeperProbe(tmp_path / "run", ["/bin/sleep", "600"])
    try:
        probe.start()
        probe.process.send_signal(signal.SIGSTOP)
        eventually(lambda: _state(probe.process.pid) == "T", "the stop")
        # More than the keeper reads at once: its first answers then meet a closed connection, the order is still unread.
        order = json.dumps({"op": "end", "ladder": [], "reason": "last word"})
        probe.sock.sendall(b'{"op": "survivors"}\n' * 4000 + order.encode() + b"\n")
        probe.hang_up()
        probe.process.send_signal(signal.SIGCONT)
        assert probe.exit()["reason"] == "last word"
    finally:
        probe.close()


# -- the zoo itself ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cage() -> Iterator[Cage]:
    with Cage(None) as made:
        yield made


def start(cage: Cage, kind: str) -> subprocess.Popen[bytes]:
    """A fake CLI and its animal, without a keeper."""
    argv = [sys.executable, "-I", "-S", animals.__file__, "host", kind, "stays"]
    host = subprocess.Popen(argv, cwd=cage.tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert host.stdout and host.stdout.readline() == b"up\n"
    return host


def test_the_cage_sees_what_was_spared(cage: Cage) -> None:
    with start(cage, "cleared environment") as host:
        host.kill()
        host.wait()
        assert not cage.empty() and len(cage.living()) == 1
        cage.clear()
        assert cage.empty() and inside(str(cage.root)) == []


def test_a_guard_starts_the_other_anew(cage: Cage) -> None:
    with start(cage, "guard pair") as host:
        pair = {found.pid for found in cage.living()} - {host.pid}
        for _ in range(3):
            os.kill(min(pair), signal.SIGKILL)
            known = pair
            pair = eventually(lambda known=known: _another_pair(cage, host.pid, known), "a new pair")
        cage.clear()


def test_a_reforking_animal_is_never_where_it_was(cage: Cage) -> None:
    with start(cage, "re-forking"):
        seen: set[int] = set()
        end = time.monotonic() + 20
        while len(seen) < 10 and time.monotonic() < end:
            seen |= {found.pid for found in cage.living()}
        assert len(seen) >= 10
        cage.clear()


def test_the_figures_hold_every_cell() -> None:
    from tests.zoo import report

    outcomes = [Outcome(Task("setsid", "KILL", "walk", n), ms=float(n), missed=n // 99) for n in range(100)]
    [cell] = report.cells(outcomes)
    assert (cell["kills"], cell["survivors"], cell["median_ms"], cell["worst_ms"]) == (100, 1, 50.0, 99.0)
    assert "setsid" in report.table([cell]) and json.dumps(report.summary(outcomes))


def _another_pair(cage: Cage, host: int, known: set[int]) -> set[int]:
    pair = {found.pid for found in cage.living()} - {host}
    return pair if len(pair) == 2 and pair != known else set()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
