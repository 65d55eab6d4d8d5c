"""What systemd wants of its service: the same SIGTERM begins a stop and a restart, and only the manager's list of jobs tells which.

Seen with systemd 252, system and user manager. While a unit has its SIGTERM, its job is `restart running` for restart,
try-restart and reload-or-restart (without ExecReload=), and for the restart of a unit that it is bound to; `stop running`
for a stop and a shutdown. systemd tells its services nothing of it (its issue 39316).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

import trio

from clisup.ops.doctor_machine import ServiceFacts

__all__ = ["Unit", "job_of", "properties_of", "restart_job", "service_facts", "unit_of"]

ASK_LIMIT_S = 2.0  # a manager that is too busy to answer: then it counts as a stop
_USER_MANAGER = re.compile(r"user@[0-9]+\.service")
_PASSED = ("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS")


class Unit(NamedTuple):
    """A service, and whether a user's manager runs it or the system's."""

    name: str
    user: bool


async def restart_job(env: Mapping[str, str]) -> bool:
    """Is this process a unit's main process that systemd is about to start again? `env` is the one it was started with.

    False where there is no unit, no `systemctl`, no connection to the manager or no answer within `ASK_LIMIT_S`.
    """
    if not _is_main_process(env):
        return False
    unit = unit_of(_own_cgroups())
    if unit is None:
        return False
    # All jobs: a name on the command line would be a pattern, and names have backslashes.
    jobs = await _ask(unit, env, "list-jobs", "--no-legend", "--plain", "--full")
    return job_of(unit.name, jobs) == "restart"


async def service_facts(env: Mapping[str, str], user: str) -> ServiceFacts:
    """How systemd runs this process, for `clisup doctor`. `env` is the one it was started with, `user` its user's name."""
    unit = unit_of(_own_cgroups()) if _is_main_process(env) else None
    if unit is None:
        return ServiceFacts(_booted())
    said = await _ask(unit, env, "show", "--property=KillMode", "--", unit.name)
    return ServiceFacts(_booted(), unit.name, unit.user, _lingers(user), properties_of(said))


def _booted() -> bool:
    """Is systemd the init system here (sd_booted(3))?"""
    return os.path.isdir("/run/systemd/system")


def _lingers(user: str) -> bool:
    """Does systemd keep this user's services without a login (`loginctl enable-linger`)?"""
    return os.path.exists(f"/var/lib/systemd/linger/{user}")


def properties_of(said: str) -> dict[str, str]:
    """What `systemctl show` prints: a line `Name=value` for each property."""
    return {name: value for name, mark, value in (line.partition("=") for line in said.splitlines()) if mark}


def _is_main_process(env: Mapping[str, str]) -> bool:
    """False from a shell that a unit (a terminal, cron) has started, and where there is no unit; systemd.exec(5)."""
    return "INVOCATION_ID" in env and env.get("SYSTEMD_EXEC_PID", str(os.getpid())) == str(os.getpid())


async def _ask(unit: Unit, env: Mapping[str, str], *words: str) -> str:
    """What the unit's manager answers; nothing where there is no `systemctl`."""
    systemctl = shutil.which("systemctl", path=env.get("PATH", os.defpath))
    if systemctl is None:
        return ""
    passed = {name: env[name] for name in _PASSED if name in env}
    return await _output([systemctl, *(["--user"] if unit.user else []), *words], passed)


def unit_of(cgroups: str) -> Unit | None:
    """The service that /proc/PID/cgroup (cgroups(7)) names, of v2 or of v1's `name=systemd`; None where it names none."""
    lines = [line.split(":", 2) for line in cgroups.splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in lines if (number, controllers) == ("0", "")]
    named = [path for _, controllers, path in lines if controllers == "name=systemd"]
    return next((unit for path in unified + named if (unit := _unit_in(path))), None)


def job_of(unit: str, listing: str) -> str | None:
    """The type of the unit's job, of what `systemctl list-jobs` says: id, unit, type, state."""
    rows = [line.split() for line in listing.splitlines()]
    return next((row[2] for row in rows if len(row) == 4 and row[1] == unit), None)


def _unit_in(path: str) -> Unit | None:
    names = path.split("/")
    units = [index for index, name in enumerate(names) if name.endswith((".service", ".scope"))]
    if not units or names[units[-1]].endswith(".scope"):
        return None  # a login session, or a scope that a terminal has made for its shell
    above = names[: units[-1]]
    # systemd puts an underscore before a name that the kernel could take for a file of its own.
    return Unit(names[units[-1]].removeprefix("_"), any(_USER_MANAGER.fullmatch(name) for name in above))


def _own_cgroups() -> str:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


async def _output(command: list[str], env: Mapping[str, str]) -> str:
    """What it says on stdout; nothing where it cannot be started or says it too late."""

    async def kill(process: trio.Process) -> None:
        process.kill()

    with trio.move_on_after(ASK_LIMIT_S):
        try:
            done = await trio.run_process(
                command,
                env={**env, "LC_ALL": "C"},
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                check=False,
                cwd="/",
                deliver_cancel=kill,
            )
        except OSError:
            return ""
        return done.stdout.decode("utf-8", "replace")
    return ""
