"""What systemd wants of its service, as far as it can be told without one: names, lists, and when nobody is asked at all."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clisup.host.systemd import service as systemd
from clisup.host.systemd.notifier import Notifier, notify_message
from clisup.host.systemd.service import Unit, job_of, restart_job, unit_of

USER = "/user.slice/user-1000.slice/user@1000.service"
LISTING = "  58 dep.service    restart waiting\n 63 clisup.service restart running\n 70 other\\x2dclisup.service stop running\n"


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        (f"0::{USER}/app.slice/clisup.service\n", Unit("clisup.service", user=True)),
        ("0::/system.slice/clisup.service\n", Unit("clisup.service", user=False)),
        ("0::/system.slice/system-clisup.slice/clisup@a\\x2db.service", Unit("clisup@a\\x2db.service", user=False)),
        ("0::/system.slice/clisup.service/daemon\n", Unit("clisup.service", user=False)),
        (f"0::{USER}/app.slice/_cpu.service\n", Unit("cpu.service", user=True)),
        (
            f"9:pids:/\n1:name=systemd:{USER}/clisup.service\n0::{USER}/clisup.service\n",
            Unit("clisup.service", user=True),
        ),
        (
            f"9:pids:/system.slice/not.service\n1:name=systemd:{USER}/clisup.service\n",
            Unit("clisup.service", user=True),
        ),
        ("9:name=systemd:/\n0::/system.slice/clisup.service\n", Unit("clisup.service", user=False)),
        ("0::/system.slice/a:b.service\n", Unit("a:b.service", user=False)),
        (f"0::{USER}/app.slice/app-terminal.scope\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("9:name=systemd:/\n0::/\n", None),
        ("no line of the kernel's\n", None),
        ("", None),
    ],
)
def test_the_own_unit_and_its_manager_are_read_off_the_cgroup(cgroups: str, unit: Unit | None) -> None:
    assert unit_of(cgroups) == unit


@pytest.mark.parametrize(
    ("unit", "job"),
    [("clisup.service", "restart"), ("other\\x2dclisup.service", "stop"), ("lisup.service", None), ("running", None)],
)
def test_a_job_is_that_of_exactly_this_unit(unit: str, job: str | None) -> None:
    assert job_of(unit, LISTING) == job


@pytest.mark.parametrize("listing", ["", "No jobs running.\n", "63 clisup.service\n"])
def test_no_list_has_no_job(listing: str) -> None:
    assert job_of("clisup.service", listing) is None


class Systemctl:
    """A fake one on a PATH of its own, that notes how it was called."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.env = {"PATH": str(root), "INVOCATION_ID": "0" * 32, "XDG_RUNTIME_DIR": "/run/user/1000", "SECRET": "x"}
        monkeypatch.setattr(systemd, "_own_cgroups", lambda: f"0::{USER}/app.slice/clisup.service\n")

    def says(self, text: str, then: str = "exit 0") -> None:
        file = self.root / "systemctl"
        note = f'echo "$0" "$@" > {self.root}/argv; /usr/bin/env > {self.root}/env'
        file.write_text(f"#!/bin/sh\n{note}\nprintf %s {shlex.quote(text)}\n{then}\n")
        file.chmod(0o755)

    @property
    def called(self) -> str | None:
        file = self.root / "argv"
        return file.read_text().partition(" ")[2].strip() if file.exists() else None


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    return Systemctl(tmp_path, monkeypatch)


@pytest.mark.parametrize(("job", "back"), [("restart", True), ("stop", False), ("start", False)])
async def test_only_a_restart_job_means_to_come_back(systemctl: Systemctl, job: str, back: bool) -> None:
    systemctl.says(f"63 clisup.service {job} running\n")
    assert await restart_job(systemctl.env) is back
    assert systemctl.called == "--user list-jobs --no-legend --plain --full"


async def test_systemctl_gets_what_leads_to_the_manager_and_nothing_else(systemctl: Systemctl) -> None:
    systemctl.says(LISTING)
    assert await restart_job({**systemctl.env, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/bus"})
    names = {line.partition("=")[0] for line in (systemctl.root / "env").read_text().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "LC_ALL"}


async def test_the_systems_manager_is_asked_about_a_unit_of_the_system(
    systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "_own_cgroups", lambda: "0::/system.slice/clisup.service\n")
    systemctl.says(LISTING)
    assert await restart_job(systemctl.env)
    assert systemctl.called == "list-jobs --no-legend --plain --full"


async def test_a_manager_that_does_not_answer_in_time_means_a_stop(
    systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "ASK_LIMIT_S", 0.3)
    systemctl.says(LISTING, "trap '' TERM; exec /bin/sleep 1000")
    before = psutil.Process().children()  # the zygote of other tests may be among them
    assert not await restart_job(systemctl.env)
    assert psutil.Process().children() == before


async def test_a_systemctl_that_cannot_reach_a_manager_means_a_stop(systemctl: Systemctl) -> None:
    systemctl.says("", "echo 'Failed to connect to bus' >&2; exit 1")
    assert not await restart_job(systemctl.env)


async def test_a_systemctl_that_cannot_be_executed_means_a_stop(systemctl: Systemctl) -> None:
    (systemctl.root / "systemctl").write_bytes(b"\x7fELF")
    (systemctl.root / "systemctl").chmod(0o755)
    assert not await restart_job(systemctl.env)


@pytest.mark.parametrize(
    "change",
    [{"INVOCATION_ID": None}, {"SYSTEMD_EXEC_PID": "1"}, {"PATH": "/nonexistent"}, {"PATH": ""}],
    ids=["no unit", "started by a unit's shell", "no systemctl", "no PATH"],
)
async def test_where_no_manager_can_mean_this_process_nobody_is_asked(
    systemctl: Systemctl, change: dict[str, str | None]
) -> None:
    systemctl.says(LISTING)
    env = {name: value for name, value in {**systemctl.env, **change}.items() if value is not None}
    assert not await restart_job(env)
    assert systemctl.called is None


async def test_the_units_main_process_is_told_by_its_pid(systemctl: Systemctl) -> None:
    systemctl.says(LISTING)
    assert await restart_job({**systemctl.env, "SYSTEMD_EXEC_PID": str(os.getpid())})


async def test_a_process_outside_of_any_unit_asks_nobody(systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "_own_cgroups", lambda: "0::/user.slice/user-1000.slice/session-3.scope\n")
    systemctl.says(LISTING)
    assert not await restart_job(systemctl.env)
    assert systemctl.called is None


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def notifier(manager: socket.socket, **env: str) -> Notifier:
    return Notifier.of({"NOTIFY_SOCKET": manager.getsockname(), **env})


def heard(manager: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().split("\n"))


def test_a_message_is_a_line_for_each_field_and_no_value_brings_its_own() -> None:
    assert notify_message(READY=1, STATUS="two\nlines\r and a\ttab") == b"READY=1\nSTATUS=two lines and a tab"


def test_the_words_are_those_of_sd_notify(manager: socket.socket) -> None:
    speaker = notifier(manager, WATCHDOG_USEC="30000000")
    assert speaker.ready("3 sessions") and heard(manager) == {"READY": "1", "STATUS": "3 sessions"}
    assert speaker.status("draining") and heard(manager) == {"STATUS": "draining"}
    assert speaker.stopping() and heard(manager) == {"STOPPING": "1"}
    assert speaker.watchdog() and heard(manager) == {"WATCHDOG": "1"}
    assert speaker.extend(30) and heard(manager) == {"EXTEND_TIMEOUT_USEC": "30000000"}
    assert speaker.reloading()
    said = heard(manager)
    assert said.keys() == {"RELOADING", "MONOTONIC_USEC"}
    assert said["MONOTONIC_USEC"].isdecimal()


def test_an_abstract_address_begins_with_an_at(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0clisup@test/{os.getpid()}")
        assert Notifier.of({"NOTIFY_SOCKET": f"@clisup@test/{os.getpid()}"}).status("x")
        assert sock.recv(64) == b"STATUS=x"


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_watchdog_is_that_of_this_process_or_none(
    manager: socket.socket, env: dict[str, str], seconds: float | None
) -> None:
    assert notifier(manager, **env).watchdog_s == seconds
    assert notifier(manager, **env).watchdog() is (seconds is not None)


@pytest.mark.parametrize(
    "env", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "vsock:2:1"}]
)
def test_without_a_manager_nothing_is_said(env: dict[str, str]) -> None:
    speaker = Notifier.of({"WATCHDOG_USEC": "1000", **env})
    assert not speaker.listening
    assert not (speaker.ready("x") or speaker.watchdog() or speaker.stopping() or speaker.extend(1))


def test_a_manager_that_is_gone_or_too_busy_holds_nobody_up(manager: socket.socket, tmp_path: Path) -> None:
    speaker = notifier(manager)
    sent = 0
    while speaker.status("x"):
        sent += 1
    assert sent
    assert not Notifier.of({"NOTIFY_SOCKET": str(tmp_path / "absent")}).ready("x")
