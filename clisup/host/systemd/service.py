"""Questions to the service manager about this service.

A stop and a restart begin with the same SIGTERM; the list of jobs differs.

Seen with systemd 252, system and user manager. While a unit handles its SIGTERM, its job is `restart running` or `stop
running`. The first stands for restart, try-restart and reload-or-restart (without ExecReload=), and for the restart of
a unit that it is bound to. The second stands for a stop and a shutdown. systemd does not tell its services which job it
is (systemd issue 39316).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from clisup.host.process.helpers import DISCARD, ask
from clisup.ops.doctor import ServiceFacts

MAX_ANSWER = 1024 * 1024
ASK_LIMIT_S = 2.0  # for a busy manager: no answer in time counts as a stop
_USER_MANAGER = re.compile(r"user@[0-9]+\.service")
_PASSED = ("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS")


class Unit(NamedTuple):
    """Service unit, and whether a user's manager or the system's manager runs it."""

    name: str
    user: bool


async def restart_job(env: Mapping[str, str]) -> bool:
    """Tell whether this process is a unit's main process that systemd will start again.

    `env` is the environment that the process was started with. Return False without a unit, without `systemctl`,
    without a connection to the manager, or without an answer within `ASK_LIMIT_S`.
    """
    if not _is_main_process(env):
        return False
    unit = unit_of(_own_cgroups())
    if unit is None:
        return False
    # List all jobs: a name on the command line would be a pattern, and names have backslashes.
    jobs = await _ask(unit, env, "list-jobs", "--no-legend", "--plain", "--full")
    return job_of(unit.name, jobs) == "restart"


async def service_facts(env: Mapping[str, str], user: str) -> ServiceFacts:
    """Return how systemd runs this process, for `clisup doctor`.

    `env` is the environment that the process was started with, `user` is the name of its user.
    """
    unit = unit_of(_own_cgroups()) if _is_main_process(env) else None
    if unit is None:
        return ServiceFacts(_booted())
    said = await _ask(unit, env, "show", "--property=KillMode", "--", unit.name)
    return ServiceFacts(_booted(), unit.name, unit.user, _lingers(user), properties_of(said))


def _booted() -> bool:
    """Tell whether systemd is the init system here (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def _lingers(user: str) -> bool:
    """Tell whether systemd keeps this user's services without a login (`loginctl enable-linger`)."""
    return os.path.exists(f"/var/lib/systemd/linger/{user}")


def properties_of(said: str) -> dict[str, str]:
    """Return the properties that `systemctl show` prints: a line `Name=value` for each."""
    return {name: value for name, mark, value in (line.partition("=") for line in said.splitlines()) if mark}


def _is_main_process(env: Mapping[str, str]) -> bool:
    """Tell whether this process is a unit's main process (systemd.exec(5)).

    Return False in a shell that a unit (a terminal, cron) has started, and without a unit.
    """
    return "INVOCATION_ID" in env and env.get("SYSTEMD_EXEC_PID", str(os.getpid())) == str(os.getpid())


async def _ask(unit: Unit, env: Mapping[str, str], *words: str) -> str:
    """Return the answer of the unit's manager, or "" without `systemctl` or an answer in time."""
    systemctl = shutil.which("systemctl", path=env.get("PATH", os.defpath))
    if systemctl is None:
        return ""
    command = [systemctl, *(["--user"] if unit.user else []), *words]
    passed = {name: env[name] for name in _PASSED if name in env} | {"LC_ALL": "C"}
    done = await ask(command, passed, purpose="unit", stderr=DISCARD, limit_s=ASK_LIMIT_S, limit_bytes=MAX_ANSWER)
    return done.output if done.exit_code is not None else ""


def unit_of(cgroups: str) -> Unit | None:
    """Return the service in /proc/PID/cgroup (cgroups(7)), of v2 or of v1's `name=systemd`, or None."""
    lines = [line.split(":", 2) for line in cgroups.splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in lines if (number, controllers) == ("0", "")]
    named = [path for _, controllers, path in lines if controllers == "name=systemd"]
    return next((unit for path in unified + named if (unit := _unit_in(path))), None)


def job_of(unit: str, listing: str) -> str | None:
    """Return the type of the unit's job from the output of `systemctl list-jobs`: id, unit, type, state."""
    rows = [line.split() for line in listing.splitlines()]
    return next((row[2] for row in rows if len(row) == 4 and row[1] == unit), None)


def _unit_in(path: str) -> Unit | None:
    names = path.split("/")
    units = [index for index, name in enumerate(names) if name.endswith((".service", ".scope"))]
    if not units or names[units[-1]].endswith(".scope"):
        return None  # a login session, or a scope that a terminal has made for its shell
    above = names[: units[-1]]
    # systemd puts an underscore before a name that the kernel could take for its own file.
    return Unit(names[units[-1]].removeprefix("_"), any(_USER_MANAGER.fullmatch(name) for name in above))


def _own_cgroups() -> str:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
