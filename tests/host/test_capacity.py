"""How much the limits of this process have room for."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping

import pytest

from clisup.host import capacity
from clisup.host.capacity import connections_at_once, live_at_once, turns_at_once
from clisup.host.process import cgroups

GIB = 1024 * 1024 * 1024


def limited(monkeypatch: pytest.MonkeyPatch, *, files: int, tasks: int = -1, **of_cgroup: int) -> None:
    """Pretend these limits on a machine with 64 GiB. `of_cgroup` are pids_max and memory_max."""
    limits: Mapping[int, int] = {resource.RLIMIT_NOFILE: files, resource.RLIMIT_NPROC: tasks}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], limits[which]))
    monkeypatch.setattr(capacity, "machine_memory", lambda: 64 * GIB)
    monkeypatch.setattr(capacity, "own_limit", lambda name: of_cgroup.get(name.replace(".", "_")))
    monkeypatch.setattr("os.geteuid", lambda: 1000)


@pytest.mark.fault(87)
@pytest.mark.parametrize(
    ("limits", "turns", "name"),
    [
        ({"files": -1}, 218, "memory"),
        ({"files": -1, "memory_max": 3 * GIB}, 10, "memory"),
        ({"files": 1024}, 82, "open files"),
        ({"files": 128}, 8, "open files"),
        ({"files": 20}, 1, "open files"),
        ({"files": 4096, "tasks": 200}, 6, "processes"),
        ({"files": 4096, "tasks": 200, "pids_max": 100}, 3, "processes"),
    ],
)
def test_the_scarcest_resource_bounds_the_turns(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], turns: int, name: str
) -> None:
    limited(monkeypatch, **limits)
    assert turns_at_once(0) == (turns, name)


def test_a_number_of_the_configuration_holds_as_far_as_the_descriptors_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, files=128, tasks=32)
    assert turns_at_once(4) == (4, "daemon.max_running")
    assert turns_at_once(64) == (8, "open files")
    assert (live_at_once(0), live_at_once(4), live_at_once(50)) == (0, 4, 8)


@pytest.mark.parametrize(("files", "connections"), [(-1, 512), (1024, 330), (128, 32), (40, 8)])
def test_connections_leave_descriptors_for_turns(monkeypatch: pytest.MonkeyPatch, files: int, connections: int) -> None:
    limited(monkeypatch, files=files)
    assert connections_at_once(512) == connections
    assert connections_at_once(2) == 2


def test_the_limits_of_this_very_process_count() -> None:
    words = "from clisup.host.capacity import *; print(*turns_at_once(0), connections_at_once(512), file_size_limit())"

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        [sys.executable, "-B", "-c", words], preexec_fn=lower, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() in (["4", "open", "files", "16", "4096"], ["1", "memory", "16", "4096"])


def test_the_least_limit_of_a_cgroup_and_those_above_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    own = f"{tmp_path}/a/b"
    subprocess.run(["mkdir", "-p", own], check=True)
    for place, text in ((own, "max"), (f"{tmp_path}/a", "100"), (f"{tmp_path}", "4096")):
        with open(f"{place}/pids.max", "w") as file:
            file.write(f"{text}\n")
    monkeypatch.setattr(cgroups, "_own_cgroup", lambda: own)
    monkeypatch.setattr(cgroups, "_mount_point", lambda: str(tmp_path))
    assert (cgroups.own_limit("pids.max"), cgroups.own_limit("memory.max")) == (100, None)
