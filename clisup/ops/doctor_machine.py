"""Checks of the machine, in order, as rules on gathered facts. They concern no single backend. Pure."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from clisup.ops.finding import Finding, Verdict, examine, fail, ok, warn

__all__ = ["MACHINE_CHECKS", "DirectoryFacts", "MachineFacts", "ServiceFacts", "check_machine"]

LOW_DISK_BYTES = 1024 * 1024 * 1024
"""Free space below which the check warns: one run alone may write `limits.spool_bytes` (4 GiB)."""
CGROUP_KILL_SINCE = (5, 14)
NEEDED_KERNEL = (5, 10)
SOCKET_PATH_LIMIT = 107
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""Earliest plausible time: before it this version did not exist. A clock before it is wrong, and TLS fails with it."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.s3fs", "afs", "ceph"}
)


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """Directory as this user sees it.

    `mode` is None if the directory is missing; `free_bytes` and `file_system` if unknown. `problem` is the reason why
    the daemon would refuse the directory, because others can change it, and the remedy.
    """

    path: str
    mode: int | None = None
    readable: bool = False
    writable: bool = False
    problem: tuple[str, str] | None = None
    free_bytes: int | None = None
    file_system: str | None = None


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


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about the machine.

    `daemon` is `{version, pid, state}` of the daemon that answers, or None without an answer. `configuration` is the
    place of the configuration. If it cannot be read, `configuration_problem` is the reason and the remedy. `storage` is
    the state that a running daemon sees, with its error. `time` is the wall clock's, in seconds. If no daemon answers,
    `holder` is the process that still holds the state directory, and `stale` marks a leftover socket. `log` is the log
    format of a running daemon and the number of lost lines. `hidden` marks a /proc that does not show every process.
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


def check_machine(facts: MachineFacts) -> list[Finding]:
    """Return the findings on the machine, in order."""
    return examine(facts, MACHINE_CHECKS)


def _configuration(facts: MachineFacts) -> Verdict:
    if facts.configuration_problem is not None:
        return fail(*facts.configuration_problem)
    return ok(facts.configuration)


def _cwd(facts: MachineFacts) -> Verdict | None:
    if (cwd := facts.cwd) is None:
        return None
    if cwd.mode is None:
        return fail(
            f"{cwd.path} is no directory, or its file system does not answer", "give one that is there: --cwd DIR"
        )
    if not cwd.readable:
        return fail(
            f"{cwd.path} cannot be read by the daemon's user", "give it read and execute permission, or take another"
        )
    if cwd.mode & stat.S_IWOTH:
        fix = f"take the right away (chmod o-w {cwd.path}) or work in a directory of your own"
        return warn(f"{cwd.path} can be written by everybody: anybody can put instructions and settings there", fix)
    return ok(f"{cwd.path}, {'writable' if cwd.writable else 'read-only'}")


def _state(facts: MachineFacts) -> Verdict:
    state = facts.state
    if state.problem is not None:
        return fail(f"{state.path} is open to others: {state.problem[0]}", state.problem[1])
    if state.mode is None:
        return ok(f"{state.path} is not there yet: the daemon makes it")
    if facts.storage is not None and facts.storage[0] != "ok":
        return fail(
            f"{state.path}: {facts.storage[0]}: {facts.storage[1]}", "make room, or mend the disk; nothing is lost"
        )
    if not (state.readable and state.writable):
        return fail(f"{state.path} cannot be written by the daemon's user", "give it to that user: chown, chmod 700")
    if state.mode & 0o077:
        fix = f"chmod 700 {state.path}, owned by the daemon's user"
        return fail(f"{state.path} is open to others (mode {stat.S_IMODE(state.mode):o})", fix)
    if state.file_system in NETWORK_FILE_SYSTEMS:
        fix = "put it on a local disk: daemon.state_dir"
        return warn(f"{state.path} is on {state.file_system}: locks and syncs may not mean there what they say", fix)
    if state.free_bytes is not None and state.free_bytes < LOW_DISK_BYTES:
        fix = "make room, or lower daemon.retention and limits.spool_bytes"
        return warn(f"{state.path}: {state.free_bytes // 2**20} MiB are free", fix)
    free = "" if state.free_bytes is None else f", {state.free_bytes / 2**30:.1f} GiB free"
    return ok(f"{state.path} ({state.file_system or 'unknown file system'}{free})")


def _socket(facts: MachineFacts) -> Verdict:
    if len(facts.socket.encode("utf-8", "surrogateescape")) > SOCKET_PATH_LIMIT:
        fix = "set daemon.socket or CLISUP_SOCKET to a shorter path"
        return fail(f"{facts.socket} is longer than the {SOCKET_PATH_LIMIT} bytes that Linux takes", fix)
    directory = facts.socket_directory
    if directory.problem is not None:
        what, fix = directory.problem
        return fail(f"{directory.path} is open to others, who could put a socket of theirs in place: {what}", fix)
    if directory.mode is None:
        return ok(f"{facts.socket}; its directory is not there yet: the daemon makes it")
    if not directory.writable:
        return fail(f"{directory.path} cannot be written by this user", "set daemon.socket to a directory of your own")
    return ok(facts.socket)


def _daemon(facts: MachineFacts) -> Verdict:
    if facts.daemon is None and facts.holder is not None:
        fix = f"it may listen elsewhere (CLISUP_SOCKET, daemon.socket); if it hangs, kill {facts.holder} and start it: turns go on"
        return fail(f"process {facts.holder} holds {facts.state.path}, and none answers at {facts.socket}", fix)
    if facts.daemon is None and facts.stale:
        fix = "start it: clisup serve (it takes that place)"
        return warn(f"none answers at {facts.socket}: what lies there is left of one that is gone", fix)
    if facts.daemon is None:
        return warn(
            f"none answers at {facts.socket}: what follows is as this command sees it", "start it: clisup serve"
        )
    return ok(f"clisup {facts.daemon['version']}, pid {facts.daemon['pid']}, {facts.daemon['state']}")


def _log(facts: MachineFacts) -> Verdict:
    if facts.log is None:
        return ok("no daemon runs here that could have one")
    form, dropped = facts.log
    if dropped:
        fix = "see whether the journal, or whoever reads the daemon's stderr, is there and keeps up"
        return warn(f"{dropped} lines were lost: nobody took them", fix)
    if facts.service.unit is not None and form != "journald":
        fix = (
            f"take --log-format out of ExecStart of {facts.service.unit}: then journalctl CLISUP_SESSION=... finds them"
        )
        return warn(f"as {form} on stderr, under systemd: the journal knows no field of it", fix)
    return ok(
        "to the journal: journalctl -t clisup" if form == "journald" else f"as {form} on stderr: clisup daemon log"
    )


def _cgroup(facts: MachineFacts) -> Verdict:
    if facts.cgroup is not None:
        return ok(f"one for each run, below {facts.cgroup}")
    fix = "run it as a systemd service with Delegate=yes (clisup install --user); without, clisup finds processes by /proc"
    return warn(
        "none can be made: what a tool leaves behind is found by its marker, and memory limits do not count", fix
    )


def _systemd(facts: MachineFacts) -> Verdict:
    service = facts.service
    if service.unit is None:
        there = "not started by it" if service.booted else "not there"
        return ok(f"{there}: after a crash or a reboot nobody starts the daemon but you")
    mode = service.properties.get("KillMode")
    if mode is None:
        return ok(f"{service.unit}; the manager does not answer")
    if mode != "process":
        fix = f"KillMode=process in {service.unit} (the one of clisup install has it)"
        return fail(f"{service.unit} has KillMode={mode}: systemd ends every turn when the daemon restarts", fix)
    if service.user and not service.lingers:
        return warn(
            f"{service.unit} ends with your last logout", "loginctl enable-linger, where it must go on without you"
        )
    return ok(f"{service.unit}, KillMode=process")


def _kernel(facts: MachineFacts) -> Verdict:
    release = ".".join(map(str, facts.kernel))
    if facts.missing:
        fix = "a Linux kernel of 5.10 or newer, and a sandbox (seccomp) that does not forbid them"
        return fail(f"{release} lacks {', '.join(facts.missing)}", fix)
    if facts.kernel < CGROUP_KILL_SINCE:
        return warn(f"{release} has no cgroup.kill", "5.14 or newer: then a whole tree can be ended in one step")
    return ok(f"{release}: pidfd, memory files, /proc")


def _processes(facts: MachineFacts) -> Verdict:
    if not facts.hidden:
        return ok("/proc shows every process")
    fix = "add the daemon's user to the group of the mount's gid= option; in a unit, take out ProtectProc="
    lost = "a tool that makes itself undumpable counts in no memory limit and in no look for work"
    return warn(f"/proc hides processes (hidepid=, ProtectProc=): {lost}", fix)


def _clock(facts: MachineFacts) -> Verdict:
    try:
        now = datetime.fromtimestamp(facts.time, UTC)
    except (OverflowError, OSError, ValueError):
        now = datetime.min.replace(tzinfo=UTC)
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now < EARLIEST:
        return fail(f"it is {shown}, says the clock: certificates will not be valid", "set the clock")
    if facts.synchronised is False:
        return warn(f"{shown}, and nothing keeps it right", "switch time synchronisation on: timedatectl set-ntp true")
    return ok(f"{shown}{'' if facts.synchronised is None else ', kept right by a time service'}")


MACHINE_CHECKS: tuple[tuple[str, Callable[[MachineFacts], Verdict | None]], ...] = (
    ("configuration", _configuration),
    ("daemon", _daemon),
    ("log", _log),
    ("cwd", _cwd),
    ("state directory", _state),
    ("socket", _socket),
    ("cgroup", _cgroup),
    ("systemd", _systemd),
    ("kernel", _kernel),
    ("processes", _processes),
    ("clock", _clock),
)
"""Checks in the order of display."""
