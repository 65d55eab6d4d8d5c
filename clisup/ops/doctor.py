"""Checks of `clisup doctor`: rules on gathered facts, first of the machine, then of each backend. Pure.

A rule returns a status, a reason in one line, and a remedy. `clisup.daemon.ops.doctor` gathers the facts.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from clisup.ops.drift import DriftEntry
from clisup.ops.notify_check import notify_verdict
from clisup.policy.environment.scrub import ADAPTERS, EnvReport, Pair, Stamp, held_back
from clisup.policy.versions import version_key

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


def _findings(facts: Any, checks: Checks, *, backend: str | None = None) -> list[Finding]:
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


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about the machine.

    `daemon` is `{version, pid, state}` of the daemon that answers, or None without an answer. `configuration` is the
    place of the configuration. If it cannot be read, `configuration_problem` is the reason and the remedy. `storage` is
    the state that a running daemon sees, with its error. `time` is the wall clock's, in seconds. If no daemon answers,
    `holder` is the process that still holds the state directory, and `stale` marks a leftover socket. `log` is the log
    format of a running daemon and the number of lost lines. `hidden` marks a /proc that does not show every process.
    `search_path` is the PATH on which the daemon looks for the CLIs.
    `notify` are the targets of a running daemon.
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


def check_machine(facts: MachineFacts) -> list[Finding]:
    """Return the findings on the machine, in order."""
    return _findings(facts, MACHINE_CHECKS)


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
        fix = f"it may listen elsewhere (CLISUP_SOCKET, daemon.socket); if it hangs, kill {facts.holder} and start the daemon: turns go on"
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
    if dropped:
        fix = "check that the journal, or the reader of the daemon's stderr, runs and keeps up"
        return warn(f"{dropped} lines were lost, because no reader took them", fix)
    if file := (facts.daemon or {}).get("log_file"):
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
        "cgroups are not available: leftover processes are found by their marker in /proc, and memory limits do not apply",
        fix,
    )


def _systemd(facts: MachineFacts) -> Verdict:
    service = facts.service
    if service.unit is None:
        there = "not started by systemd" if service.booted else "no systemd"
        return ok(f"{there}: after a crash or a reboot you have to start the daemon yourself")
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
    ("clock", _clock),
)
"""Checks in the order of display."""


# -- one backend -------------------------------------------------------------------------------------------------------

SHOWN = 5  # names that a finding lists; it counts further names


@dataclass(slots=True)
class BackendFacts:
    """Facts about one backend.

    `optional` marks a backend that nobody configured or named, so that its absence is no failure. `problem` maps the
    name of a check (executable, version, argv or environment) to the reason why the backend cannot start, and the
    remedy. `login` is None if the CLI cannot tell. `keys` are the variables with which the CLI logs in, None if
    unknown. `key_env` is the variable with the key of an API backend. It is empty for an API that takes requests
    without a key, and None for a CLI with a login of its own.
    """

    name: str
    lists: str
    optional: bool = False
    path: str | None = None
    worker: tuple[str, ...] = ()
    version: str | None = None
    supported: str = ""
    login: bool | None = None
    login_asked: str = ""
    login_elsewhere: str = ""
    argv: tuple[str, ...] = ()
    environment: EnvReport | None = None
    inherited: frozenset[str] = frozenset()
    pairs: tuple[Pair, ...] = ()
    keys: tuple[str, ...] | None = None
    key_env: str | None = None
    pass_env: tuple[str, ...] = ()
    root: bool = False
    refused_as_root: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    names_checked: str | None = None
    drift: tuple[DriftEntry, ...] = ()
    problem: dict[str, tuple[str, str]] = field(default_factory=dict)


def check_backend(facts: BackendFacts) -> list[Finding]:
    """Return the findings on one backend, in order. A missing backend has only the finding `executable`."""
    checks = BACKEND_CHECKS if facts.path is not None else BACKEND_CHECKS[:1]
    return _findings(facts, checks, backend=facts.name)


def _executable(facts: BackendFacts) -> Verdict:
    if facts.path is None:
        reason, fix = facts.problem["executable"]
        return (warn if facts.optional else fail)(reason, fix)
    behind = f", which starts {' '.join(facts.worker)}" if facts.worker else ""
    return ok(f"{facts.path}{behind}")


def _version(facts: BackendFacts) -> Verdict:
    if problem := facts.problem.get("version"):
        return fail(*problem)
    return ok(f"{facts.version or 'cannot tell: this kind cannot be asked'} (supported: {facts.supported or 'any'})")


def _login(facts: BackendFacts) -> Verdict:
    if facts.key_env is not None:
        return _api_key(facts, facts.key_env)
    if facts.login is None:
        return ok("cannot tell: " + (f"{facts.login_asked} gives no known answer" if facts.login_asked else _NO_WAY))
    if facts.login:
        return ok(f"logged in, says {facts.login_asked}; the first prompt shows whether the API accepts the login")
    held = _held_keys(facts)
    own = f"log in as the daemon's user, with {facts.path}, or set a key in [backends.{facts.name}.env]"
    passed = f"; {_list(held)} is in the daemon's environment, but held back: name it in pass_env" if held else ""
    if facts.login_elsewhere:
        return warn(
            f"not logged in, says {facts.login_asked}; the command ignores {facts.login_elsewhere}", own + passed
        )
    return fail(f"not logged in, says {facts.login_asked}", own + passed)


def _api_key(facts: BackendFacts, name: str) -> Verdict:
    if not name:
        return ok("this backend sends no key")
    if facts.login:
        return ok(f"the key is in {name}; the first prompt shows whether the API accepts the key")
    fix = f'set {name} for the daemon, or name a file with the key (0600): [backends.{facts.name}.env_files] {name} = "~/key"'
    return (warn if facts.optional else fail)(f"no key: the variable {name} is not set", fix)


_NO_WAY = "this CLI has no such command without a request to its API"


def _argv(facts: BackendFacts) -> Verdict:
    if problem := facts.problem.get("argv"):
        return fail(*problem)
    return ok(" ".join(facts.argv))


def _environment(facts: BackendFacts) -> Verdict:
    report = facts.environment
    if report is None:
        return fail(*facts.problem["environment"])
    counts = f"{len(report.kept)} kept, {len(report.set)} set, {len(report.dropped)} dropped"
    there = {name for name, how in (*report.kept, *report.set) if how not in ADAPTERS}
    lonely = [pair.endpoint for pair in facts.pairs if pair.endpoint in there and not there & set(pair.credentials)]
    if lonely:
        detail = f"{counts}; {_list(lonely)} is passed without a key: the CLI would send its own login there"
        return warn(detail, f"set the key in [backends.{facts.name}.env] as well, unless this is intended")
    absent = [name for name in facts.pass_env if not name.endswith("*") and name not in facts.inherited]
    if absent:
        detail = f"{counts}; pass_env names {_list(absent)}, but the daemon's environment has no such variable"
        return warn(detail, "start the daemon with the variable, or remove it from pass_env")
    held = _held_keys(facts)
    note = f"; held back unless pass_env names it: {_list(held)}" if held else ""
    return ok(f"{counts}{note}")


def _held_keys(facts: BackendFacts) -> list[str]:
    return held_back(facts.environment, facts.pairs, facts.keys) if facts.environment else []


def _root(facts: BackendFacts) -> Verdict:
    if not facts.root:
        return ok("not root")
    if not facts.refused_as_root:
        return ok("root, and this CLI has no restriction for root")
    refused = [word for word in facts.refused_as_root if word in facts.args]
    fix = "run the daemon as an ordinary user (docs/doctor.md names the exception)"
    if refused:
        return fail(f"args asks for {_list(refused)}, which this CLI refuses as root", fix)
    return warn(f"root: this CLI will refuse {_list(facts.refused_as_root)}", fix)


def _lists(facts: BackendFacts) -> Verdict:
    versions = [version for stamp in facts.stamps if (version := stamp.version_of(facts.lists))]
    said = "checked with " + "; ".join(dict.fromkeys(f"{stamp.source}, {stamp.date}" for stamp in facts.stamps))
    if not facts.stamps:
        fix = "add a line such as `# checked: claude 2.1.329, 2026-11-20` to each list (docs/environment.md)"
        return warn("the lists have no record of their last check", fix)
    newest = max(map(version_key, versions), default=None)
    newer = facts.version is not None and newest is not None and version_key(facts.version) > newest
    if newer and facts.names_checked != facts.version:
        fix = f"list the new names: clisup doctor --drift {facts.name}"
        return warn(f"{said}, but {facts.version} is installed, which may read variables that no list knows", fix)
    return ok(said)


def _drift(facts: BackendFacts) -> Verdict:
    if not facts.drift:
        return ok("no unknown output")
    words = "; ".join(f"{entry.version}: {_unknown(entry)}" for entry in facts.drift)
    fix = "nothing is lost: `unparsed` events hold the whole frames; update clisup, or report them with a recording (clisup record)"
    return warn(f"unknown to this clisup, by version of the CLI: {words}", fix)


def _unknown(entry: DriftEntry) -> str:
    parts = [("frames", entry.frames), ("fields", entry.fields)]
    return ", ".join(f"{what} {_list(sorted(names))}" for what, names in parts if names)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


BACKEND_CHECKS: Checks = (
    ("executable", _executable),
    ("version", _version),
    ("login", _login),
    ("argv", _argv),
    ("environment", _environment),
    ("scrub lists", _lists),
    ("root", _root),
    ("drift", _drift),
)
"""Checks in the order of display."""
