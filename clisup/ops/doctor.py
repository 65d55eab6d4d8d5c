"""Checks of `clisup doctor` on the machine: rules on gathered facts. `doctor_backend` has those on a backend. Pure.

A rule returns a status, a reason in one line, and a remedy. `clisup.daemon.ops.doctor` gathers the facts.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from clisup.ops.notify_check import notify_verdict

Status = Literal["ok", "warn", "fail"]


class Finding(Struct, frozen=True):
    """Result of one check. `fix` is set if the status is not ok; `backend` is None for a check of the machine.

    A finding may hold names of variables, but never values.
    """

    check: str
    status: Status
    detail: str
    fix: str = ""
    backend: str | None = None


Verdict = tuple[Status, str, str]
"""Result of a rule: status, detail, fix."""


def ok(detail: str) -> Verdict:
    return "ok", detail, ""


def warn(detail: str, fix: str) -> Verdict:
    return "warn", detail, fix


def fail(detail: str, fix: str) -> Verdict:
    return "fail", detail, fix


Checks = tuple[tuple[str, Callable[[Any], Verdict | None]], ...]
"""Table of rules: the name of a check, and its rule. A rule that does not apply returns None."""


def findings_of(facts: Any, checks: Checks, *, backend: str | None = None) -> list[Finding]:
    verdicts = [(name, rule(facts)) for name, rule in checks]
    return [Finding(name, *verdict, backend=backend) for name, verdict in verdicts if verdict is not None]


# -- the machine -------------------------------------------------------------------------------------------------------

LOW_DISK_BYTES = 1024 * 1024 * 1024
"""Free space below which the check warns: one run alone may write `limits.spool_bytes` (4 GiB)."""
CGROUP_KILL_SINCE = (5, 14)
NEEDED_KERNEL = (5, 10)
SOCKET_PATH_LIMIT = 107
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""Earliest plausible time: before it this version did not exist. A clock before it is wrong, and TLS fails with it."""
NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.s3fs", "afs", "ceph"]
)


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """Directory as this user sees it.

    `mode` is None if the directory is missing; `free_bytes` and `file_system` if unknown. `problem` is the reason why
    the daemon would refuse the directory, because others can change it, and the remedy. `obstacle`: why it cannot be created.
    """

    path: str
    mode: int | None = None
    readable: bool = False
    writable: bool = False
    problem: tuple[str, str] | None = None
    free_bytes: int | None = None
    file_system: str | None = None
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Relation of systemd to this daemon. `unit` is None outside of a unit.

    `properties` are those of `systemctl show`, as far as it answered.
    """

    booted: bool = False
    unit: str | None = None
    user: bool = False
    lingers: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


FEW_TURNS = 16
"""Turns at once below which a limit of open files or processes is worth a warning."""
_RAISE = {
    "open files": "raise the limit: ulimit -n, LimitNOFILE=",
    "processes": "raise the limit: ulimit -u, TasksMax=, pids.max of the container",
}


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about the machine.

    `daemon` is `{version, pid, state}` of the daemon that answers, or None without an answer. `configuration` is the
    place of the configuration. If it cannot be read, `configuration_problem` is the reason and the remedy. `storage` is
    the state that a running daemon sees, with its error. `time` is the wall clock's, in seconds. If no daemon answers,
    `holder` is the process that still holds the state directory, and `stale` marks a leftover socket. `log` is the log
    format of a running daemon and the number of lost lines. `hidden` marks a /proc that does not show every process.
    `search_path` is the PATH on which the daemon looks for the CLIs.
    `notify` are the targets of a running daemon. `turns` is the number of turns that have room at once, and the resource
    that bounds it. `file_size` is the finite limit of a file's size, if there is one.
    """

    configuration: str
    cwd: DirectoryFacts | None
    state: DirectoryFacts
    socket: str
    socket_directory: DirectoryFacts
    kernel: tuple[int, int]
    missing: tuple[str, ...]
    cgroup: str | None
    service: ServiceFacts
    time: float
    synchronised: bool | None
    configuration_problem: tuple[str, str] | None = None
    daemon: Mapping[str, object] | None = None
    storage: tuple[str, str | None] | None = None
    holder: int | None = None
    stale: bool = False
    log: tuple[str, int] | None = None
    hidden: bool = False
    search_path: str = ""
    notify: tuple[Mapping[str, object], ...] = ()
    turns: tuple[int, str] | None = None
    file_size: int | None = None


def check_machine(facts: MachineFacts) -> list[Finding]:
    """Return the findings on the machine, in order."""
    return findings_of(facts, MACHINE_CHECKS)


def _configuration(facts: MachineFacts) -> Verdict:
    if facts.configuration_problem is not None:
        return fail(*facts.configuration_problem)
    return ok(facts.configuration)


def _cwd(facts: MachineFacts) -> Verdict | None:
    if (cwd := facts.cwd) is None:
        return None
    if cwd.mode is None:
        return fail(
            f"{cwd.path} is not a directory, or its file system does not answer",
            "name an existing directory: --cwd DIR",
        )
    if not cwd.readable:
        return fail(
            f"{cwd.path} cannot be read by the daemon's user",
            "grant read and execute permission, or use another directory",
        )
    if cwd.mode & stat.S_IWOTH:
        fix = f"run chmod o-w {cwd.path}, or work in a directory of your own"
        return warn(f"{cwd.path} is writable by everybody: others can put instructions and settings there", fix)
    return ok(f"{cwd.path}, {'writable' if cwd.writable else 'read-only'}")


def _state(facts: MachineFacts) -> Verdict:
    state = facts.state
    if state.problem is not None:
        return fail(f"{state.path} is open to others: {state.problem[0]}", state.problem[1])
    if state.mode is None and state.obstacle is not None:
        return fail(
            f"{state.path} cannot be created: {state.obstacle}", "set daemon.state_dir to a directory of your own"
        )
    if state.mode is None:
        return ok(f"{state.path} does not exist yet: the daemon creates it")
    if facts.storage is not None and facts.storage[0] != "ok":
        return fail(
            f"{state.path}: {facts.storage[0]}: {facts.storage[1]}",
            "free disk space, or repair the disk; nothing is lost",
        )
    if not (state.readable and state.writable):
        return fail(
            f"{state.path} cannot be written by the daemon's user", "change its owner and mode: chown, chmod 700"
        )
    if state.mode & 0o077:
        fix = f"chmod 700 {state.path}, owned by the daemon's user"
        return fail(f"{state.path} is open to others (mode {stat.S_IMODE(state.mode):o})", fix)
    if state.file_system in NETWORK_FILE_SYSTEMS:
        fix = "use a local disk: daemon.state_dir"
        return warn(f"{state.path} is on {state.file_system}: locks and syncs may not work there", fix)
    if state.free_bytes is not None and state.free_bytes < LOW_DISK_BYTES:
        fix = "free disk space, or lower daemon.retention and limits.spool_bytes"
        return warn(f"{state.path}: only {state.free_bytes // 2**20} MiB free", fix)
    free = "" if state.free_bytes is None else f", {state.free_bytes / 2**30:.1f} GiB free"
    return ok(f"{state.path} ({state.file_system or 'unknown file system'}{free})")


def _socket(facts: MachineFacts) -> Verdict:
    if len(facts.socket.encode("utf-8", "surrogateescape")) > SOCKET_PATH_LIMIT:
        fix = "set daemon.socket or CLISUP_SOCKET to a shorter path"
        return fail(f"{facts.socket} is longer than the {SOCKET_PATH_LIMIT} bytes that Linux takes", fix)
    directory = facts.socket_directory
    if directory.problem is not None:
        what, fix = directory.problem
        return fail(f"{directory.path} is open to others, who could replace the socket: {what}", fix)
    if directory.mode is None and directory.obstacle is not None:
        return fail(
            f"{directory.path} cannot be created: {directory.obstacle}", "set daemon.socket to a path of your own"
        )
    if directory.mode is None:
        return ok(f"{facts.socket}; its directory does not exist yet: the daemon creates it")
    if not directory.writable:
        return fail(f"{directory.path} cannot be written by this user", "set daemon.socket to a directory of your own")
    return ok(facts.socket)


def _daemon(facts: MachineFacts) -> Verdict:
    if facts.daemon is None and facts.holder is not None:
        fix = f"it may listen elsewhere (CLISUP_SOCKET, daemon.socket); if it hangs: kill -9 {facts.holder}, then clisup start; turns go on"
        return fail(f"process {facts.holder} holds {facts.state.path}, and no daemon answers at {facts.socket}", fix)
    if facts.daemon is None and facts.stale:
        fix = "start the daemon: clisup start (it replaces the socket)"
        return warn(f"no daemon answers at {facts.socket}: the socket is left from a dead daemon", fix)
    if facts.daemon is None:
        return warn(f"no daemon answers at {facts.socket}: this command checks in its place", "start it: clisup start")
    return ok(f"clisup {facts.daemon['version']}, pid {facts.daemon['pid']}, {facts.daemon['state']}")


def _log(facts: MachineFacts) -> Verdict:
    if facts.log is None:
        return ok("no daemon is running")
    form, dropped = facts.log
    file = (facts.daemon or {}).get("log_file")
    if dropped:
        if file is not None:
            fix = "check its directory, its owner and the free space"
            return warn(f"{dropped} lines were lost, because {file} could not be written", fix)
        fix = "check that the journal, or the reader of the daemon's stderr, runs and keeps up"
        return warn(f"{dropped} lines were lost, because no reader took them", fix)
    if file is not None:
        return ok(f"as {form} to {file}: clisup daemon log")
    if facts.service.unit is not None and form != "journald":
        fix = f"remove --log-format from ExecStart of {facts.service.unit}: journalctl CLISUP_SESSION=... then finds the lines"
        return warn(f"as {form} on stderr, under systemd: the journal has no fields", fix)
    return ok(
        "to the journal: journalctl -t clisup" if form == "journald" else f"as {form} on stderr: clisup daemon log"
    )


def _search_path(facts: MachineFacts) -> Verdict | None:
    return ok(facts.search_path) if facts.search_path else None


def _cgroup(facts: MachineFacts) -> Verdict:
    if facts.cgroup is not None:
        return ok(f"one for each run, below {facts.cgroup}")
    fix = "run the daemon as a systemd service with Delegate=yes (clisup install --user)"
    return warn(
        "cgroups are not available: leftover processes are found by their marker in /proc, and limits.memory and limits.pids "
        "are checked once a second",
        fix,
    )


def _systemd(facts: MachineFacts) -> Verdict:
    service = facts.service
    if service.unit is None:
        there = "not started by systemd" if service.booted else "no systemd"
        return ok(f"{there}: after a crash or a reboot, clisup start or the next clisup run starts the daemon")
    mode = service.properties.get("KillMode")
    if mode is None:
        return ok(f"{service.unit}; the manager does not answer")
    if mode != "process":
        fix = f"set KillMode=process in {service.unit} (the unit of clisup install has it)"
        return fail(f"{service.unit} has KillMode={mode}: systemd ends every turn when the daemon restarts", fix)
    if service.user and not service.lingers:
        return warn(
            f"{service.unit} ends with your last logout", "run loginctl enable-linger, if the daemon has to stay"
        )
    return ok(f"{service.unit}, KillMode=process")


def _kernel(facts: MachineFacts) -> Verdict:
    release = ".".join(map(str, facts.kernel))
    if facts.missing:
        fix = "use a Linux kernel of 5.10 or newer, and a sandbox (seccomp) that allows these calls"
        return fail(f"{release} lacks {', '.join(facts.missing)}", fix)
    if facts.kernel < CGROUP_KILL_SINCE:
        return warn(f"{release} has no cgroup.kill", "use 5.14 or newer: it ends a whole tree in one step")
    return ok(f"{release}: pidfd, memory files, /proc")


def _processes(facts: MachineFacts) -> Verdict:
    if not facts.hidden:
        return ok("/proc shows every process")
    fix = "add the daemon's user to the group of the mount's gid= option; in a unit, remove ProtectProc="
    lost = "memory limits and checks for activity miss tools that make themselves undumpable"
    return warn(f"/proc hides processes (hidepid=, ProtectProc=): {lost}", fix)


def _limits(facts: MachineFacts) -> Verdict | None:
    if facts.file_size is not None:
        fix = "raise it: ulimit -f unlimited, LimitFSIZE=infinity"
        return warn(f"a file can have {facts.file_size} bytes (RLIMIT_FSIZE): longer turns end as storage_failed", fix)
    if facts.turns is None:
        return None
    turns, resource = facts.turns
    if turns < FEW_TURNS and resource in _RAISE:
        return warn(f"{resource} bound the turns at once to {turns}", _RAISE[resource])
    return ok(f"{turns} turns at once ({resource})")


def _clock(facts: MachineFacts) -> Verdict:
    try:
        now = datetime.fromtimestamp(facts.time, UTC)
    except (OverflowError, OSError, ValueError):
        now = datetime.min.replace(tzinfo=UTC)
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now < EARLIEST:
        return fail(f"the clock says {shown}: certificates will be invalid", "set the clock")
    if facts.synchronised is False:
        return warn(f"{shown}, not synchronised", "enable time synchronisation: timedatectl set-ntp true")
    return ok(f"{shown}{'' if facts.synchronised is None else ', synchronised'}")


MACHINE_CHECKS: Checks = (
    ("configuration", _configuration),
    ("daemon", _daemon),
    ("log", _log),
    ("PATH", _search_path),
    ("notify", lambda facts: notify_verdict(facts.notify)),
    ("cwd", _cwd),
    ("state directory", _state),
    ("socket", _socket),
    ("cgroup", _cgroup),
    ("systemd", _systemd),
    ("kernel", _kernel),
    ("processes", _processes),
    ("limits", _limits),
    ("clock", _clock),
)
"""Checks in the order of display."""
