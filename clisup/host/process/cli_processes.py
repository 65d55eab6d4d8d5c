"""Other processes of a CLI: processes with an open session, and possible holders of a lock. No signals are sent.

Any process of this user may have written the files in the CLI's directory. Every read is therefore bounded. Only facts
that /proc confirms count: a live process of this user and PID namespace, with the start time in the file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from clisup.host.log import event_logger
from clisup.host.process.markers import of_session
from clisup.host.shortage import raise_shortage
from clisup.policy.cli_files import Presence, PresenceRules, StaleLock

FILES_LIMIT = 4096
FILE_BYTES = 64 * 1024
CMDLINE_BYTES = 64 * 1024
ENVIRON_BYTES = 4 * 1024 * 1024
ANCESTORS_LIMIT = 64
LOCKS_BYTES = 4 * 1024 * 1024
_PIECE = 8192
_LOCK = re.compile(rb"^\d+: FLOCK +ADVISORY +WRITE (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", re.MULTILINE)
_UIDS = re.compile(rb"^Uid:\t(\d+\t\d+\t\d+)\t", re.MULTILINE)  # real, effective, saved
_START, _STATE, _PPID = 19, 0, 1  # places in /proc/<pid>/stat after the name


class OwnProcesses(NamedTuple):
    """Signs of a session's own processes: the session's marker, or the session's keeper among the ancestors."""

    session_id: str
    state: str
    keeper_pid: int | None = None


class Question(NamedTuple):
    """Question about one native session: a search for foreign processes with the session open."""

    rules: PresenceRules
    directory: str | None
    native_id: str
    own: OwnProcesses


def find_writers(questions: Sequence[Question], launched: frozenset[int] = frozenset()) -> list[int | None]:
    """Return the pid of a live process for each question, or None without such a process. Blocks for a short time.

    The process has the question's native session open. A single look at the processes answers all questions. `launched`
    are the keepers and CLIs of all sessions of the daemon. The search skips their command lines, because no two sessions
    of the daemon write the same native session. To read all of them at each start would cost more with each session.
    """
    found: list[int | None] = [None] * len(questions)
    groups: dict[tuple[PresenceRules, str | None], list[int]] = {}
    for at, question in enumerate(questions):
        groups.setdefault((question.rules, question.directory), []).append(at)
    for (rules, directory), places in groups.items():
        seen = _seen(rules, directory, {questions[at].native_id for at in places}, launched)
        for at in places:
            native, own = questions[at].native_id, questions[at].own
            found[at] = next((pid for pid in seen.get(native, ()) if not _is_ours(pid, own)), None)
    return found


def _seen(
    rules: PresenceRules, directory: str | None, natives: set[str], launched: frozenset[int]
) -> dict[str, list[int]]:
    """Return the live processes that have one of these native sessions open.

    The processes' files tell this, or else the flags.
    """
    namespace = _namespace()
    seen: dict[str, list[int]] = {}
    known: set[int] = set()
    for presence in _presences(rules, directory):
        if _is_alive(presence, namespace):
            known.add(presence.pid)
            seen.setdefault(presence.native_session_id, []).append(presence.pid)
    for pid, native in _by_command_line(rules, natives, launched | known):
        seen.setdefault(native, []).append(pid)
    for native in natives:
        path = rules.lock(directory, native) if directory is not None else None
        if path is not None:
            seen.setdefault(native, []).extend(_lockers(path))
    return seen


def _lockers(path: str) -> Iterator[int]:
    """Yield the live processes that hold a lock on a file.

    The device of a lock in /proc/locks is not always that of `stat` (btrfs), so an open file of the process has to confirm it.
    """
    try:
        file = os.lstat(path)
        with open("/proc/locks", "rb") as locks:
            held = locks.read(LOCKS_BYTES)
    except OSError as error:
        raise_shortage(error)
        return
    for pid in {int(pid) for pid, inode in _LOCK.findall(held) if int(inode) == file.st_ino}:
        if _lives(pid) and _has_open(pid, file):
            yield pid


def _has_open(pid: int, file: os.stat_result) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:FILES_LIMIT]:
            with suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), file):
                    return True
    return False


def _presences(rules: PresenceRules, directory: str | None) -> Iterator[Presence]:
    if directory is None:
        return
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry, _ in zip(entries, range(FILES_LIMIT), strict=False)]
    except OSError as error:
        raise_shortage(error)
        return
    for name in names:
        data = _read(os.path.join(directory, name)) if name.endswith(".json") else None
        presence = rules.read(name, data) if data is not None else None
        if presence is not None:
            yield presence


def _read(path: str) -> bytes | None:
    """Return the content of a small regular file of our own. No link is followed, and a pipe cannot block the read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise_shortage(error)
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > FILE_BYTES:
            return None
        return os.read(fd, FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)


def _by_command_line(
    rules: PresenceRules, natives: set[str], known: frozenset[int] | set[int]
) -> Iterator[tuple[int, str]]:
    """Yield processes with one of the sessions in the flags and without a file.

    Such a process has just started, or is of an older version.
    """
    wanted = [native.encode() for native in natives]
    for pid in _pids() - known:
        words = _proc(pid, "cmdline", CMDLINE_BYTES)
        if not any(native in words for native in wanted):
            continue
        opened = rules.opened(words.split(b"\0"))
        if opened in natives and _lives(pid):
            yield pid, opened


def _pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _lives(pid: int) -> bool:
    return _is_of_this_user(pid) and _stat(pid) is not None


def _is_alive(presence: Presence, namespace: str) -> bool:
    if presence.pid_namespace not in (None, namespace) or not _is_of_this_user(presence.pid):
        return False
    fields = _stat(presence.pid)
    return fields is not None and presence.start_time in (None, int(fields[_START]))


def _is_ours(pid: int, own: OwnProcesses) -> bool:
    environ = _proc(pid, "environ", ENVIRON_BYTES).split(b"\0")
    if pid == os.getpid() or of_session(environ, own.session_id, own.state):
        return True
    for _ in range(ANCESTORS_LIMIT if own.keeper_pid is not None else 0):
        fields = _stat(pid)
        pid = int(fields[_PPID]) if fields is not None else 0
        if pid == own.keeper_pid:
            return True
        if pid <= 1:
            break
    return False


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields after the name, or None for a missing process or a zombie."""
    fields = _proc(pid, "stat", 4096).rpartition(b")")[2].split()
    return fields if len(fields) > _START and fields[_STATE] not in (b"Z", b"X") else None


def _is_of_this_user(pid: int) -> bool:
    """Tell whether the process has this user's id as its real, effective and saved uid.

    The owner of /proc/<pid> is the effective uid alone. A set-uid program started by another user would
    pass for root's.
    """
    uids = _UIDS.search(_proc(pid, "status", 4096))
    return uids is not None and set(map(int, uids[1].split())) == {os.geteuid()}


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _proc(pid: int, name: str, limit: int) -> bytes:
    """Return up to `limit` bytes of a file in /proc, or b"" for an unreadable file.

    /proc fills the offered buffer: a piece that is not full is the last.
    """
    data = b""
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise_shortage(error)
        return data
    try:
        while len(data) < limit and len(piece := os.read(fd, _PIECE)) == _PIECE:
            data += piece
        return (data + piece)[:limit]
    except OSError:
        return b""
    finally:
        os.close(fd)


_log = event_logger()


def remove_stale_locks(locks: Iterable[StaleLock], env: Mapping[str, str]) -> list[str]:
    """Remove the `locks` without a possible holder, and return the removed paths. `env` is the environment for the CLI.

    The function never raises: a remaining lock only costs the CLI its own waiting time. The function reads /proc only if a
    lock exists.
    """
    removed = []
    for lock in locks:
        home = _home(lock, env)
        path = os.path.join(home, lock.path) if home else None
        if path is not None and _remove(lock, home or "", path):
            _log.info("stale lock removed", path=path)
            removed.append(path)
    return removed


def _remove(lock: StaleLock, home: str, path: str) -> bool:
    """Look at the lock, look for holders, look at the lock again.

    An unchanged lock is older than every live process.
    """
    try:
        before = _identity(path)
        if before is None or _holders(lock, home) or _identity(path) != before:
            return False
        os.rmdir(path)  # rmdir refuses a directory that is not empty: that is a lock of another kind
        return True
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return the identity of this lock, which differs from a later lock of the same name.

    Return None unless the path is a directory of this user.
    """
    stat = os.lstat(path)
    ours = os.path.isdir(path) and not os.path.islink(path) and stat.st_uid == os.geteuid()
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns) if ours else None


def _holders(lock: StaleLock, home: str) -> bool:
    return any(_runs(pid, lock.program) and _same(_home(lock, _environ(pid)), home) for pid in _pids())


def _runs(pid: int, program: str) -> bool:
    """Tell whether an argument is the program, or a script of that name.

    Node's scripts come after node and its flags.
    """
    arguments = _proc(pid, "cmdline", CMDLINE_BYTES).decode("utf-8", "replace").split("\0")
    names = {os.path.basename(argument) for argument in arguments}
    return bool(names & {program, f"{program}.js", f"{program}.mjs"})


def _environ(pid: int) -> dict[str, str]:
    text = _proc(pid, "environ", ENVIRON_BYTES).decode("utf-8", "replace")
    entries = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in entries if name}


def _home(lock: StaleLock, env: Mapping[str, str]) -> str | None:
    return next((value for name in lock.homes if (value := env.get(name))), None)


def _same(one: str | None, other: str) -> bool:
    """Tell whether two homes may be the same. A process with an unknown home might have this home."""
    return one is None or os.path.realpath(one) == os.path.realpath(other)
