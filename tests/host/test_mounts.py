"""The table of mounts, in which every user of the machine can choose a name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clisup.host import machine
from clisup.host.machine import Mount

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
