"""What is wrong with a machine, and what to do: rules on facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from clisup.ops.doctor import (
    LOW_DISK_BYTES,
    MACHINE_CHECKS,
    DirectoryFacts,
    Finding,
    MachineFacts,
    ServiceFacts,
    check_machine,
)

PRIVATE = DirectoryFacts("/d", mode=0o700, readable=True, writable=True, free_bytes=2**40, file_system="ext4")
OPEN = ("others may write to /d (mode 777)", "chmod go-w /d")
GOOD = MachineFacts(
    configuration="/etc/c.toml",
    cwd=PRIVATE,
    state=PRIVATE,
    socket="/d/s",
    socket_directory=PRIVATE,
    kernel=(6, 1),
    missing=(),
    cgroup="/sys/fs/cgroup/c",
    service=ServiceFacts(booted=True, unit="clisup.service", properties={"KillMode": "process"}),
    time=datetime(2026, 11, 21, tzinfo=UTC).timestamp(),
    synchronised=True,
    daemon={"version": "1", "pid": 7, "state": "ready"},
    storage=("ok", None),
    log=("journald", 0),
    search_path="/usr/bin:/bin",
    notify=({"name": "hook", "failing_since": None, "error": None, "given_up": 0},),
    turns=(40, "memory"),
)
FAILING = {"name": "hook", "failing_since": "2026", "error": "HTTP 503", "given_up": 0}


def finding(check: str, **facts: object) -> Finding:
    (found,) = [one for one in check_machine(replace(GOOD, **facts)) if one.check == check]  # type: ignore[arg-type]
    return found


def test_a_good_machine_has_every_check_in_order_and_all_of_them_ok() -> None:
    found = check_machine(GOOD)
    assert [one.check for one in found] == [name for name, _ in MACHINE_CHECKS]
    assert {(one.status, one.fix, one.backend) for one in found} == {("ok", "", None)}


@pytest.mark.parametrize(
    ("check", "facts", "status"),
    [
        ("configuration", {"configuration_problem": ("broken", "mend it")}, "fail"),
        ("daemon", {"daemon": None}, "warn"),
        ("daemon", {"daemon": None, "stale": True}, "warn"),
        ("daemon", {"daemon": None, "stale": True, "holder": 7}, "fail"),
        ("log", {"log": None}, "ok"),
        ("log", {"log": ("json", 0)}, "warn"),
        ("log", {"log": ("json", 0), "service": ServiceFacts()}, "ok"),
        ("log", {"log": ("journald", 3)}, "warn"),
        ("cwd", {"cwd": DirectoryFacts("/nowhere")}, "fail"),
        ("cwd", {"cwd": replace(PRIVATE, readable=False)}, "fail"),
        ("cwd", {"cwd": replace(PRIVATE, mode=0o777)}, "warn"),
        ("cwd", {"cwd": replace(PRIVATE, mode=0o1777)}, "warn"),
        ("cwd", {"cwd": replace(PRIVATE, mode=0o755, writable=False)}, "ok"),
        ("state directory", {"state": DirectoryFacts("/later")}, "ok"),
        ("state directory", {"state": DirectoryFacts("/never", obstacle="no")}, "fail"),
        ("socket", {"socket_directory": DirectoryFacts("/never", obstacle="no")}, "fail"),
        ("notify", {"notify": (FAILING,)}, "warn"),
        ("notify", {"notify": (FAILING | {"error": None, "given_up": 2},)}, "warn"),
        ("state directory", {"state": replace(PRIVATE, writable=False)}, "fail"),
        ("state directory", {"state": replace(PRIVATE, mode=0o755)}, "fail"),
        ("state directory", {"state": replace(PRIVATE, problem=OPEN)}, "fail"),
        ("state directory", {"state": replace(PRIVATE, file_system="nfs4")}, "warn"),
        ("state directory", {"state": replace(PRIVATE, free_bytes=LOW_DISK_BYTES - 1)}, "warn"),
        ("state directory", {"storage": ("full", "no space left")}, "fail"),
        ("socket", {"socket": "/d/" + "s" * 105}, "fail"),
        ("state directory", {"state": DirectoryFacts("/later", problem=OPEN)}, "fail"),
        ("socket", {"socket_directory": replace(PRIVATE, problem=OPEN)}, "fail"),
        ("socket", {"socket_directory": DirectoryFacts("/later", problem=OPEN)}, "fail"),
        ("socket", {"socket_directory": replace(PRIVATE, writable=False)}, "fail"),
        ("socket", {"socket_directory": DirectoryFacts("/later")}, "ok"),
        ("cgroup", {"cgroup": None}, "warn"),
        ("systemd", {"service": ServiceFacts()}, "ok"),
        ("systemd", {"service": ServiceFacts(True, "c.service", properties={"KillMode": "control-group"})}, "fail"),
        ("systemd", {"service": ServiceFacts(True, "c.service", True, False, {"KillMode": "process"})}, "warn"),
        ("systemd", {"service": ServiceFacts(True, "c.service", True, True, {"KillMode": "process"})}, "ok"),
        ("systemd", {"service": ServiceFacts(True, "c.service")}, "ok"),
        ("kernel", {"missing": ("pidfd_open (Operation not permitted)",)}, "fail"),
        ("kernel", {"kernel": (5, 10)}, "warn"),
        ("processes", {"hidden": True}, "warn"),
        ("limits", {"turns": (8, "open files")}, "warn"),
        ("limits", {"turns": (8, "memory")}, "ok"),
        ("limits", {"turns": (80, "processes")}, "ok"),
        ("limits", {"file_size": 102400}, "warn"),
        ("clock", {"time": 0.0}, "fail"),
        ("clock", {"time": 1e30}, "fail"),
        ("clock", {"synchronised": False}, "warn"),
        ("clock", {"synchronised": None}, "ok"),
    ],
)
def test_each_trouble_has_its_word_and_a_way_out(check: str, facts: dict[str, object], status: str) -> None:
    found = finding(check, **facts)
    assert found.status == status
    assert bool(found.fix) == (status != "ok")


def test_what_a_check_says_is_what_the_daemon_does() -> None:
    assert "checked once a second" in finding("cgroup", cgroup=None).detail
    assert "the next clisup run starts the daemon" in finding("systemd", service=ServiceFacts()).detail
    lost = finding("log", log=("json", 3), daemon={"version": "1", "pid": 7, "state": "ready", "log_file": "/l"})
    assert "3 lines were lost, because /l could not be written" in lost.detail
    assert "kill -9 7, then clisup start" in finding("daemon", daemon=None, holder=7).fix


def test_without_a_directory_to_work_in_nothing_is_said_of_it() -> None:
    assert "cwd" not in [one.check for one in check_machine(replace(GOOD, cwd=None))]


@pytest.mark.fault(100)
def test_a_daemon_that_ends_with_the_last_logout_is_a_warning_with_its_remedy() -> None:
    service = ServiceFacts(True, "c.service", True, False, {"KillMode": "process"})
    found = finding("systemd", service=service)
    assert found.status == "warn" and "last logout" in found.detail and "enable-linger" in found.fix
