"""Facts of the machine, as this process finds them."""

from __future__ import annotations

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from clisup.errors import ConfigurationError
from clisup.host import clock, machine
from clisup.host.machine import Mount, check_system, directory_facts, kernel_version, missing_features, user_name


def test_a_directory_is_described_as_this_process_may_use_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    facts = directory_facts(str(tmp_path))
    assert (facts.mode, facts.readable, facts.writable, facts.problem) == (0o750, True, True, None)
    assert facts.free_bytes and facts.file_system


def test_what_is_no_directory_has_no_mode(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent", tmp_path / "file", "/nul\0"):
        assert directory_facts(str(path)).mode is None


def test_a_directory_that_others_can_change_is_told_by_the_rule_of_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for path in (tmp_path, tmp_path / "later"):
        problem = directory_facts(str(path)).problem
        assert problem is not None and f"others may write to {tmp_path}" in problem[0]


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert directory_facts("/proc/self").file_system == "proc"


def test_this_machine_has_what_the_tests_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_features() == ()
    assert kernel_version() >= (5, 10)
    assert clock.synchronised() in (True, False, None)
    assert user_name()


def test_a_sandbox_that_forbids_a_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(machine, "_pidfd", refuse)
    assert missing_features() == ("pidfd_open (Operation not permitted)",)


def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    missing_features()
    assert len(os.listdir("/proc/self/fd")) == before


LOOK = """
import os, subprocess, sys
for name in (b"\\xff", b"x\\r1 1 0:1 / /forged rw - cgroup2 c rw", "no\\u00a0break".encode(), b"tab\\tand\\\\"):
    place = os.path.join(os.fsencode(sys.argv[1]), name.replace(b"/", b"_"))
    os.mkdir(place)
    subprocess.run([b"mount", b"-t", b"tmpfs", b"tmpfs", place], check=True)
from clisup.host.process.cgroups import CgroupHome
from clisup.host.machine import mounts
CgroupHome.find()
print(ascii([mount.point for mount in mounts() if mount.point.startswith(sys.argv[1])]))
"""


def test_a_line_is_cut_at_the_bytes_that_the_kernel_escapes_and_at_no_others() -> None:
    line = b"36 35 98:0 / /a\\040b\\011c\\134d\x1ce\xa0\r rw,noatime master:1 - fuse.x \xff rw\n"
    assert machine._mount(line) == Mount("/a b\tc\\d\x1ce\udca0\r", "fuse.x")
    assert machine._mount(b"\n") is None


def test_the_mounts_of_this_machine_are_read() -> None:
    assert Mount("/proc", "proc") in machine.mounts()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount without fusermount")
def test_the_name_of_a_mount_point_makes_nothing_fail_or_lie(tmp_path: Path) -> None:
    command = ["unshare", "--mount", sys.executable, "-c", LOOK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert [os.path.basename(name) for name in ast.literal_eval(done.stdout)] == [
        "\udcff",
        "x\r1 1 0:1 _ _forged rw - cgroup2 c rw",
        "no\xa0break",
        "tab\tand\\",
    ]


@pytest.mark.parametrize("release", ["5.10", "5.10.0-31-amd64", "5.15", "6.1.0", "7.0-rc1", platform.release()])
def test_linux_from_5_10_on_is_taken(release: str) -> None:
    check_system(system="linux", release=release)


@pytest.mark.parametrize(
    ("system", "release", "reason"),
    [
        ("darwin", "23.0", "'darwin'"),
        ("win32", "10", "'win32'"),
        ("linux", "5.9.16", "the kernel is 5.9"),
        ("linux", "4.19.0", "the kernel is 4.19"),
        ("linux", "unknown", "the kernel is 0.0"),
    ],
)
def test_anything_else_is_refused_with_what_is_missing(system: str, release: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        check_system(system=system, release=release)
    assert (caught.value.kind, caught.value.exit_code) == ("unsupported_system", 78)


def test_this_machine_is_taken() -> None:
    check_system()


def test_a_directory_that_cannot_be_created_has_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "later")
    for name in ("a/b", "link", "link/below"):
        assert directory_facts(str(tmp_path / name)).obstacle is None, name
    for name in ("file", "file/below", "x\0y"):
        assert directory_facts(str(tmp_path / name)).obstacle is not None, name
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "cannot write" in str(directory_facts(str(tmp_path / "closed" / "state")).obstacle)
