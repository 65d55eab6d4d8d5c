"""Notifications to the service manager, sd_notify(3), and questions to it about this service.

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
import socket
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from clisup.host import clock
from clisup.host.process.executables import ask
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
    done = await ask(command, passed, stderr=subprocess.DEVNULL, limit_s=ASK_LIMIT_S, limit_bytes=MAX_ANSWER)
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


MICROSECONDS = 1_000_000
STATUS_LIMIT = 200  # characters: `systemctl status` shows one line


def notify_message(**fields: str | int) -> bytes:
    """Return the datagram: a line `NAME=value` for each field, in the order given. Values lose their line breaks."""
    lines = (f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
    return "\n".join(lines).encode("utf-8", "replace")


class Notifier:
    """Connection to the manager that started this process.

    Every method returns False if nothing was sent, and never waits.

    `watchdog_s` is the time that the manager waits for a sign of life, or None if the manager does not wait.
    """

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s if address is not None else None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Notifier:
        """Return a notifier for the environment that the daemon was started with.

        The variables are `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
        """
        address = env.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return cls()
        return cls(address, watchdog_s=_watchdog(env))

    @property
    def listening(self) -> bool:
        """Tell whether a manager wants notifications."""
        return self._address is not None

    def ready(self, status: str) -> bool:
        """Report that the start, or a reload, is over: the daemon serves."""
        return self._send(READY=1, STATUS=status[:STATUS_LIMIT])

    def status(self, text: str) -> bool:
        """Send a line for `systemctl status`."""
        return self._send(STATUS=text[:STATUS_LIMIT])

    def stopping(self) -> bool:
        """Report that the daemon is stopping."""
        return self._send(STOPPING=1)

    def reloading(self) -> bool:
        """Report the start of a reload, of the configuration or of the whole daemon in place.

        `ready` ends the reload.
        """
        return self._send(RELOADING=1, MONOTONIC_USEC=int(clock.monotonic() * MICROSECONDS))

    def watchdog(self) -> bool:
        """Send a sign of life to the watchdog."""
        return self.watchdog_s is not None and self._send(WATCHDOG=1)

    def extend(self, seconds: float) -> bool:
        """Report that a start or a stop goes on. The next such report comes within `seconds`."""
        return self._send(EXTEND_TIMEOUT_USEC=int(seconds * MICROSECONDS))

    def _send(self, **fields: str | int) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(notify_message(**fields), _address(self._address))
        except OSError:
            return False  # the manager is busy or gone: later notifications repeat the state
        return True


def _address(text: str) -> str:
    """Return the address for the socket. A name that begins with @ is abstract (unix(7)): its first byte is NUL."""
    return "\0" + text[1:] if text.startswith("@") else text


def _watchdog(env: Mapping[str, str]) -> float | None:
    """Return the watchdog's seconds, or None.

    None means that no watchdog is wanted, or that it watches another process (sd_watchdog_enabled(3)).
    """
    wanted = env.get("WATCHDOG_USEC", "")
    if not wanted.isdecimal() or int(wanted) == 0 or env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / MICROSECONDS
