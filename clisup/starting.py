"""Start of the daemon in the background: by the user's own unit if one is installed, else as a process of its own.

`start_daemon` waits until the daemon answers. Several callers at once start one daemon, because a lock lets one of them start
and the others wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from clisup.client.raw import RawClient
from clisup.config.model import Config
from clisup.daemon.start import Flags, Place, config_path, place_of
from clisup.errors import EXIT_BUSY, EXIT_UNAVAILABLE, ClisupError, WorldError
from clisup.host.config_file import ConfigFile
from clisup.host.locks import FileLock, lock_holder
from clisup.host.log_file import LOG_FILE, open_log
from clisup.host.safe_paths import make_safe_dir
from clisup.host.systemd.units import ServiceManager, user_units
from clisup.locations import socket_for_client

__all__ = ["DaemonDied", "StartPlan", "Started", "autostart_refusal", "plan_start", "start_daemon"]

START_TIMEOUT_S = 90.0
"""Seconds until a daemon has to answer, as in the unit (`TimeoutStartSec=`). Thousands of sessions take some of them."""

OCCUPIED_TIMEOUT_S = 30.0
"""Seconds to wait for a daemon that holds the state directory already and does not answer yet."""

SAID_LIMIT = 4096
"""Bytes of a failed daemon's last output that the error shows."""

UNIT = "clisup.service"
_PAUSE_S = 0.05
_PLACES = ("CLISUP_CONFIG", "CLISUP_SOCKET", "CLISUP_STATE_DIR")
_OF_A_SERVICE = (
    "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
    "JOURNAL_STREAM", "INVOCATION_ID", "CREDENTIALS_DIRECTORY",
    "CLISUP_ENVIRONMENT_FD", "CLISUP_KEPT_FDS", "CLISUP_FIRST_LIMIT",
)  # fmt: skip
"""Variables of a service that runs this command, and of a daemon's own re-execution. They are not the new daemon's."""

_INSIDE = "CLISUP_SESSION"
"""Marker of the processes of a session. A daemon started by one of them would end with its run."""

_Report = Callable[[str], None]


class DaemonDied(WorldError):
    """Daemon that ended before it was ready. Its exit code is that of the command, too."""

    def __init__(self, message: str, *, code: int, hint: str) -> None:
        super().__init__(message, kind="daemon_not_running", hint=hint)
        self._code = code

    @property
    def exit_code(self) -> int:
        return self._code


class StartPlan(NamedTuple):
    """Daemon that would be started here and now. `config_file` is None unless the user named the file."""

    flags: Flags
    place: Place
    config: Config
    config_file: str | None


class Started(NamedTuple):
    """Daemon that answers. `started` is False if it ran already; `unit` is set if systemd started it now."""

    socket: str
    pid: int | None
    version: str
    state_dir: str
    log_file: str | None
    unit: str | None
    started: bool


def plan_start(flags: Flags, env: Mapping[str, str]) -> StartPlan:
    """Read the configuration, and return the places of the daemon. Raises `ConfigurationError`."""
    path, named = config_path(flags, env)
    config = ConfigFile(path, named).read()
    place = place_of(flags, config.daemon.socket, config.daemon.state_dir, env)
    return StartPlan(flags, place, config, path if named else None)


def autostart_refusal(plan: StartPlan, env: Mapping[str, str]) -> str:
    """Return why a command must not start the daemon by itself, or "" if it may."""
    if env.get("CLISUP_SOCKET"):
        return "CLISUP_SOCKET names the daemon's socket, so commands start none"
    if plan.place.socket != socket_for_client(env, os.getuid()):
        return "the system runs the daemon of this user"
    if not plan.config.daemon.autostart:
        return "daemon.autostart is false"
    if _INSIDE in env:
        return "a process of a session starts no daemon"
    return ""


def start_daemon(plan: StartPlan, env: Mapping[str, str], report: _Report) -> Started:
    """Start the daemon unless one answers, and wait until it is ready. `report` gets lines for the user.

    Raises `ConfigurationError` and `WorldError`: `DaemonDied` if the daemon ends, `overloaded` if it is not ready in time.
    """
    if (server := _server(plan.place.socket)) is not None:
        return _found(plan, server)
    manager = _manager(plan, env, report)
    if manager is not None:
        manager.order("start", UNIT)
        server = _await_server(plan, START_TIMEOUT_S)
        return _found(plan, server)._replace(unit=UNIT, started=True)
    make_safe_dir(plan.place.state_dir, "keep state in")
    lock = FileLock(os.path.join(plan.place.state_dir, "start.lock"))
    until = time.monotonic() + START_TIMEOUT_S
    while lock.acquire() is not None:  # another command starts the daemon at this moment
        if (server := _server(plan.place.socket)) is not None:
            return _found(plan, server)
        if time.monotonic() > until:
            raise _not_ready(plan, START_TIMEOUT_S)
        time.sleep(_PAUSE_S)
    try:
        return _start_locked(plan, env)
    finally:
        lock.release()


def _start_locked(plan: StartPlan, env: Mapping[str, str]) -> Started:
    if (server := _server(plan.place.socket)) is not None:  # of the command that had the lock before
        return _found(plan, server)
    if lock_holder(os.path.join(plan.place.state_dir, "daemon.lock")) is not None:
        return _found(plan, _await_server(plan, OCCUPIED_TIMEOUT_S))
    return _spawn(plan, env)


def _found(plan: StartPlan, server: Mapping[str, Any]) -> Started:
    log_file = server.get("log_file")
    return Started(
        plan.place.socket, server.get("pid"), str(server.get("version")), plan.place.state_dir, log_file, None, False
    )


def _server(path: str) -> dict[str, Any] | None:
    """Return how the daemon at this socket introduces itself, or None without a daemon. Raises other failures."""
    try:
        with RawClient.connect(path, name="clisup-start") as client:
            return dict(client.server.get("server") or {})
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        return None


def _await_server(plan: StartPlan, limit_s: float) -> dict[str, Any]:
    until = time.monotonic() + limit_s
    while (server := _server(plan.place.socket)) is None:
        if time.monotonic() > until:
            raise _not_ready(plan, limit_s)
        time.sleep(_PAUSE_S)
    return server


def _not_ready(plan: StartPlan, seconds: float) -> WorldError:
    holder = lock_holder(os.path.join(plan.place.state_dir, "daemon.lock"))
    who = "the daemon" if holder is None else f"pid {holder} holds {plan.place.state_dir}, and"
    return WorldError(
        f"cannot reach the daemon, because {who} does not answer at {plan.place.socket} within {seconds:g} s",
        kind="overloaded",
        hint="it may still start, hang, or listen at another socket: see clisup status and clisup daemon log",
    )


# -- systemd ------------------------------------------------------------------------------------------------------------


def _manager(plan: StartPlan, env: Mapping[str, str], report: _Report) -> ServiceManager | None:
    """Return the user's manager if it has clisup's unit, and the unit serves the place that is meant."""
    named = any(env.get(name) for name in _PLACES) or plan.flags != Flags()
    if named or not os.path.exists(os.path.join(user_units(env), UNIT)):
        return None
    manager = ServiceManager(env, user=True)
    try:
        manager.check()
    except ClisupError as error:
        report(f"{UNIT} is installed, but this start goes without it: {error.message}")
        return None
    return manager


# -- a process of its own ---------------------------------------------------------------------------------------------


def _spawn(plan: StartPlan, env: Mapping[str, str]) -> Started:
    """Start `clisup serve` in a session of its own, and wait until it is ready."""
    said = os.memfd_create("clisup-start", os.MFD_CLOEXEC)  # a full disk must not hide the reason of a failed start
    try:
        process = subprocess.Popen(
            _words(plan), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
            cwd="/", env={name: value for name, value in env.items() if name not in _OF_A_SERVICE},
        )  # fmt: skip
    except OSError as error:
        os.close(said)
        raise WorldError(f"cannot start {sys.executable}, because of: {error.strerror}", kind="spawn_failed") from None
    try:
        server = _await_ready(plan, process, said)
    finally:
        os.close(said)
    return _found(plan, server)._replace(started=server.get("pid") == process.pid)


def _words(plan: StartPlan) -> list[str]:
    words = [sys.executable, "-P", "-m", "clisup", "serve"]
    words += ["--socket", plan.place.socket, "--state-dir", plan.place.state_dir, "--log-file", log_file_of(plan)]
    return [*words, "--config", plan.config_file] if plan.config_file is not None else words


def log_file_of(plan: StartPlan) -> str:
    """Return the log file of a daemon that is started in the background."""
    return os.path.join(plan.place.state_dir, LOG_FILE)


def _await_ready(plan: StartPlan, process: subprocess.Popen[bytes], said: int) -> dict[str, Any]:
    until = time.monotonic() + START_TIMEOUT_S
    try:
        while True:
            code = process.poll()
            if (server := _server(plan.place.socket)) is not None:
                return server
            if code == EXIT_BUSY:  # another daemon was faster
                return _await_server(plan, max(0.0, until - time.monotonic()))
            if code is not None:
                raise _died(plan, code, said)
            if time.monotonic() > until:
                raise _not_ready(plan, START_TIMEOUT_S)
            time.sleep(_PAUSE_S)
    finally:
        process.returncode = process.returncode or 0  # the daemon outlives this command, which never waits for it


def _died(plan: StartPlan, code: int, said: int) -> DaemonDied:
    """Return the error for a daemon that ended, with its own words. They go to its log file, too."""
    size = os.fstat(said).st_size
    data = os.pread(said, SAID_LIMIT, max(0, size - SAID_LIMIT))
    log_file = log_file_of(plan)
    try:
        fd = open_log(log_file)
        os.write(fd, data)
        os.close(fd)
    except OSError:
        pass  # the error has the same words
    text, _, hint = data.decode("utf-8", "replace").strip().partition("\n  hint: ")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    reason = text.removeprefix("clisup: ") or "it gave no reason"
    return DaemonDied(
        f"cannot start the daemon, which {how}: {reason}",
        code=code if code > 0 else EXIT_UNAVAILABLE,
        hint=hint or f"its log: {log_file}",
    )
