"""The daemon's socket, and the peers of its connections.

The socket is in a private directory, 0600 from its first moment. There is one daemon for each socket. systemd may hold
the listening socket instead (socket activation, sd_listen_fds(3)).

The kernel names a peer (SO_PEERCRED, unix(7)). Two signs show that a keeper started the peer. First, its parents lead to
a keeper. Second, its hard limit RLIMIT_RTTIME is below this process's own. A keeper lowers that limit slightly for its
CLI, and every descendant inherits the limit. Only a process with CAP_SYS_RESOURCE can raise it again. The parents
identify root's tools. The limit identifies tools that have lost their keeper or that /proc does not show
(docs/decisions/0010).
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

from clisup.errors import ConfigurationError, WorldError
from clisup.host.files import storage_error
from clisup.host.locks import FileLock
from clisup.host.process.carrying import first_limit
from clisup.host.safe_paths import make_safe_dir
from clisup.locations import SOCKET_PATH_LIMIT

MAX_DEPTH = 1000
"""Limit of parents to look at. A deeper process counts as started by a keeper: no honest client is nested so deep."""
WALKS = 5  # up a process tree that changes meanwhile
_UCRED = struct.Struct("3i")
_ENDLESS = resource.RLIM_INFINITY
_OWN_LIMIT = first_limit()


class Peer(NamedTuple):
    """Credentials of a peer at the time it connected."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return the credentials of the other end of a connected Unix socket."""
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def own_uids() -> tuple[int, ...]:
    """Return the uids that version 1 of the protocol serves: the daemon's own, and root."""
    return (os.geteuid(), 0)


def comes_from(pid: int, keepers: Collection[int], reaper: int = 0) -> bool:
    """Tell whether a CLI below one of `keepers`, or below a keeper that is gone, may have started `pid`.

    `reaper` is the daemon's pid if the daemon is the subreaper of its tree: the orphans of a killed keeper are its
    children.

    An unknown origin counts as yes, with one exception. A pid of 0 belongs to a process of an invisible pid namespace,
    and a keeper starts no such process. Raises `OSError` if no descriptor is left for the look.
    """
    for _ in range(WALKS):
        if (found := _walk(pid, keepers, reaper)) is not None:
            return found
    return bool(keepers)  # a process that connects for its child and exits is no stranger


def _walk(pid: int, keepers: Collection[int], reaper: int) -> bool | None:
    """Walk from `pid` to its parents.

    Return None if a parent left meanwhile, because its children then have a new parent.
    """
    for _ in range(MAX_DEPTH):
        if pid <= 1:
            return False
        marked = is_marked(pid)
        if marked or pid in keepers:
            return True
        try:
            parent = parent_of(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return _unseen(pid, marked)
        if parent == reaper and reaper:
            return True
        pid = parent
    return True


def _unseen(pid: int, marked: bool | None) -> bool | None:
    """Judge a process that /proc does not show: it has ended, or /proc is mounted with hidepid= (proc(5)).

    hidepid= hides the processes of other users, where the daemon's own tree ends. It also hides undumpable processes of
    the same user: sshd's for each login, and those that a tool makes undumpable.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return False
    return marked is None


def is_gone(pid: int) -> bool:
    """Tell whether no process has this pid. A pid of 0 counts as alive.

    /proc is no proof, because hidepid= hides live processes.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # a number that is too large comes from the name of a file
        return True
    except PermissionError:
        pass
    return False


def is_marked(pid: int) -> bool | None:
    """Tell whether a keeper has lowered the limit of this process.

    Return None if the kernel does not tell: the process belongs to another user, or is gone.
    """
    try:
        limit = resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except OSError:
        return None
    return limit != _ENDLESS and (_OWN_LIMIT == _ENDLESS or limit < _OWN_LIMIT)


def parent_of(pid: int) -> int:
    """Return the parent's pid, or 0 if the parent is not visible.

    Raises `OSError` if /proc does not show the process.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read()
    return int(fields[fields.rindex(b")") + 2 :].split()[1])  # the name before it is in brackets and may hold anything


BACKLOG = 1024  # a restart in place takes a second or two, and new clients then wait here


def check_unlocked(holder: int | None, what: str, path: str) -> None:
    """Raise `WorldError(daemon_already_running)` with the pid of the process that holds a lock, if one does."""
    if holder is not None:
        who = f"pid {holder}" if holder > 0 else "another process"
        raise WorldError(
            f"cannot start, because {who} serves this {what} already ({path})",
            kind="daemon_already_running",
            hint="stop it first (clisup stop), or give another --socket and --state-dir",
            pid=holder,
        )


def take_lock(path: str, what: str, inherited: int | None = None) -> FileLock:
    """Take a lock for as long as the daemon lives.

    Raises `WorldError(daemon_already_running)` with the holder's pid.
    """
    lock = FileLock(path, inherited)
    check_unlocked(lock.acquire(), what, path)
    lock.write(f"{os.getpid()}\n")
    return lock


def claim_socket(path: str, inherited: int | None = None) -> FileLock:
    """Create the socket's directory if it is missing, and take the lock beside the socket.

    Raises `WorldError(daemon_already_running)`. Raises `ConfigurationError` if nothing can be created there: an error
    of storage would blame the state directory, which is another place.
    """
    _check_length(path)
    try:
        make_safe_dir(os.path.dirname(path), "listen in", check="socket")
        return take_lock(f"{path}.lock", "socket", inherited)
    except WorldError as error:
        if error.kind != "storage_failed":
            raise
        raise ConfigurationError(
            f"cannot listen on {path}, because its directory cannot be used: {error.message}",
            hint="give another --socket, in a directory of your own",
            check="socket",
        ) from error


def bind_listener(path: str, inherited: int | None = None) -> socket.socket:
    """Bind and listen. Call this under the socket's lock: an existing socket file is then stale.

    `inherited` is the listening descriptor of the daemon that was this process before, or systemd's. Clients that
    connected meanwhile wait there. Raises `ConfigurationError` for an unusable path, and `WorldError(storage_failed)`
    if the system refuses.
    """
    _check_length(path)
    if inherited is not None:
        return socket.socket(fileno=inherited)
    make_safe_dir(os.path.dirname(path), "listen in", check="socket")
    _check_place(path)
    _check_nobody_listens(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    scratch = f"{path}.{os.getpid()}"
    scratch = scratch if len(os.fsencode(scratch)) <= SOCKET_PATH_LIMIT else path
    try:
        _unlink(scratch)
        old = os.umask(0o177)
        try:
            sock.bind(scratch)
        finally:
            os.umask(old)
        sock.listen(BACKLOG)
        if scratch != path:
            os.rename(scratch, path)  # a client finds the old socket or a served one, never none
    except OSError as error:
        sock.close()
        try:
            os.unlink(scratch)
        except OSError:
            pass
        raise storage_error("listen on", path, error) from None
    return sock


def _check_length(path: str) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise ConfigurationError(
            f"cannot listen on {path}, because the path has more than {SOCKET_PATH_LIMIT} bytes",
            hint="use a shorter --socket",
            check="socket",
        )


def _check_place(path: str) -> None:
    """Refuse a path at which something other than a socket exists: binding would replace somebody's file.

    An existing socket may be stale.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(
            f"cannot listen on {path}, because something that is no socket is there",
            hint="move it away, or give another --socket",
            check="socket",
        )


def _check_nobody_listens(path: str) -> None:
    """Refuse a path at which another process listens.

    Under the lock no other clisup listens here. But systemd may listen, for a socket unit, and would lose its clients.
    The answer of connect(2) is about this very socket. (/proc/net/unix holds names that any user of the machine
    chooses.) The connection wakes a socket unit. Its service starts, exits with 75 if it finds our lock, and is started
    again.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
        answer = sock.connect_ex(path)
        if answer not in (0, errno.EAGAIN):  # EAGAIN: its queue is full
            return
        peer = peer_of(sock) if answer == 0 else None
    if peer is not None and is_gone(peer.pid):
        return  # a killed daemon: its child holds the socket until the child executes its own program
    who = "" if peer is None else f", pid {peer.pid} of uid {peer.uid}"
    raise ConfigurationError(
        f"cannot listen on {path}, because another process does (systemd, for clisup.socket?){who}",
        hint="systemctl --user start clisup, or stop clisup.socket first; or give another --socket",
        check="socket",
    )


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


ACTIVATED = "activated"
"""Name of the activated socket among the descriptors that a restart in place hands on."""

FIRST_FD = 3
_NAMES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
_UNIT = "see clisup.socket: one ListenStream= with a path, SocketMode=0600"


def activated_descriptors(env: Mapping[str, str]) -> dict[str, int]:
    """Return `{"activated": 3}` if systemd passed a socket to this very process, else an empty dict.

    No child inherits the socket. The pid stays the same across a re-execution. Raises `ConfigurationError` for more
    than one socket, and for a closed one.
    """
    if env.get("LISTEN_PID") != str(os.getpid()) or not env.get("LISTEN_FDS", "").isdecimal():
        return {}
    count = int(env["LISTEN_FDS"])
    try:
        for fd in range(FIRST_FD, FIRST_FD + count):
            os.set_inheritable(fd, False)
    except (OSError, OverflowError):
        raise ConfigurationError(
            f"cannot serve what LISTEN_FDS names, because descriptor {fd} is not open", hint=_UNIT
        ) from None
    if count > 1:
        raise ConfigurationError(f"cannot serve the {count} sockets that systemd has passed", hint=_UNIT)
    return {ACTIVATED: FIRST_FD} if count else {}


def without_activation(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a successor in this process, which gets the descriptor by its name."""
    return {name: value for name, value in env.items() if name not in _NAMES}


def activated_path(fd: int) -> str:
    """Return the path of the passed socket. Raises `ConfigurationError` if others than its owner may reach it."""
    path = _path_of(fd)
    try:
        node, directory = os.lstat(path), os.stat(os.path.dirname(path))
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve {path}, which systemd listens at, because of: {error.strerror}",
            hint="somebody has removed or replaced it: restart the socket unit",
        ) from None
    if not stat.S_ISSOCK(node.st_mode) or node.st_mode & 0o077 or node.st_uid not in (os.geteuid(), 0):
        raise ConfigurationError(
            f"cannot serve {path}, because others may connect to it (mode {stat.S_IMODE(node.st_mode):o}, uid {node.st_uid})",
            hint="SocketMode=0600 in the socket unit, and SocketUser= where the system's manager runs it",
        )
    if directory.st_mode & 0o077 or directory.st_uid not in (os.geteuid(), 0):
        place, mode = os.path.dirname(path), stat.S_IMODE(directory.st_mode)
        raise ConfigurationError(
            f"cannot serve {path}, because {place} is open to others (mode {mode:o}, uid {directory.st_uid})",
            hint=f"chmod 700 {place}, and DirectoryMode=0700 in the socket unit",
        )
    return path


def _path_of(fd: int) -> str:
    """Return the path of a listening Unix stream socket. Raises `ConfigurationError` for any other descriptor."""
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            kind = (sock.family, sock.type, sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            name = sock.getsockname()
    except OSError:
        raise ConfigurationError("cannot serve what systemd has passed, because it is no socket", hint=_UNIT) from None
    if kind != (socket.AF_UNIX, socket.SOCK_STREAM, 1) or not isinstance(name, str) or not name.startswith("/"):
        raise ConfigurationError(
            "cannot serve what systemd has passed, because it is no listening Unix socket with a path", hint=_UNIT
        )
    return name
