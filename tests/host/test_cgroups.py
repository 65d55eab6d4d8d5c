"""A cgroup for a run: made, killed, proven empty and removed, with real processes. Skipped where none can be made."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.host.process import cgroups
from clisup.host.process.cgroups import CgroupHome
from clisup.host.process.markers import RunMarker

HOME = CgroupHome.find()
needs_cgroup = pytest.mark.skipif(
    not HOME.available, reason="no cgroup v2 can be made here (not root, nothing delegated)"
)
LIMIT_S = 20.0
STATE = "1f.2a"


@pytest.fixture
def run() -> Iterator[tuple[str, str]]:
    """(session, cgroup) of a run."""
    session = str(uuid.uuid4())
    path = HOME.make(RunMarker(session, 3, STATE))
    assert path is not None
    yield session, path
    cgroups.kill(path)
    until = time.monotonic() + LIMIT_S
    while not cgroups.remove(path) and Path(path).exists() and time.monotonic() < until:
        time.sleep(0.01)


def inside(path: str, command: str) -> subprocess.Popen[bytes]:
    """A shell that moves itself into the cgroup, clears its environment and goes on in a session of its own."""
    script = f'echo 0 > "{path}/cgroup.procs"; exec env -i setsid /bin/sh -c "{command}"'
    return subprocess.Popen(["/bin/sh", "-c", script])


def until_true(condition: object, limit: float = LIMIT_S) -> None:
    end = time.monotonic() + limit
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


@needs_cgroup
@pytest.mark.fault(10)
def test_a_kill_reaches_what_left_its_session_and_its_environment(run: tuple[str, str]) -> None:
    _, path = run
    shell = inside(path, "sleep 300 & sleep 300 & wait")
    until_true(lambda: len(cgroups.members(path)) == 3)
    assert cgroups.populated(path)
    assert not cgroups.remove(path), "something lives in it"
    assert cgroups.kill(path)
    shell.wait(LIMIT_S)
    until_true(lambda: not cgroups.populated(path))
    assert cgroups.remove(path) and not Path(path).exists()


@needs_cgroup
def test_a_run_is_found_again_by_the_next_daemon(run: tuple[str, str]) -> None:
    session, path = run
    again, mark = CgroupHome.find(), RunMarker(session, 3, STATE)
    assert again.of(mark) == path and again.of(mark._replace(run=4)) is None
    assert (session, 3) in again.leftovers(STATE)
    assert again.make(mark) == path, "a daemon before this one had made it and died"
    assert cgroups.is_of(path, mark)


@needs_cgroup
@pytest.mark.fault(86)
def test_a_run_of_another_state_directory_has_no_such_cgroup(run: tuple[str, str]) -> None:
    session, path = run
    other = RunMarker(session, 3, "1f.2b")
    assert HOME.of(other) is None and not cgroups.is_of(path, other)
    assert (session, 3) not in HOME.leftovers(other.state)


@needs_cgroup
def test_a_cgroup_that_clisup_0_1_0_made_is_found_without_the_id_of_a_state_directory() -> None:
    mark = RunMarker(str(uuid.uuid4()), 3, STATE)
    path = f"{HOME.path}/clisup-{mark.session}-3"
    Path(path).mkdir()
    try:
        assert HOME.of(mark) == path and cgroups.is_of(path, mark)
        assert (mark.session, 3) in HOME.leftovers(STATE)
    finally:
        assert cgroups.remove(path)


def test_without_a_home_there_is_simply_none() -> None:
    nowhere, mark = CgroupHome(None), RunMarker("x", 1, STATE)
    assert (nowhere.available, nowhere.make(mark), nowhere.of(mark), nowhere.leftovers(STATE)) == (
        False,
        None,
        None,
        [],
    )


def test_a_cgroup_that_is_gone_is_empty_and_takes_no_kill(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert not cgroups.kill(gone) and not cgroups.populated(gone)
    assert cgroups.members(gone) == [] and cgroups.oom_kills(gone) == 0


def test_the_kernels_count_of_oom_kills_is_read(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 1\noom_kill 2\n")
    assert cgroups.oom_kills(str(tmp_path)) == 2


def test_limits_are_set_where_the_controllers_are_there_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert cgroups.limit(str(tmp_path), memory=1 << 30, pids=64) == ["memory.max"]
    assert (tmp_path / "memory.max").read_text().startswith(str(1 << 30))
    assert not (tmp_path / "pids.max").exists()
    assert cgroups.limit(str(tmp_path), memory=0, pids=0) == []
