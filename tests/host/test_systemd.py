"""What systemd wants of its service, as far as it can be told without one: names, lists, and when nobody is asked at all."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import psutil
import pytest

from clisup.host.systemd import service as systemd
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
