"""The daemon's socket: in a private directory, 0600 from its first moment, one daemon for each socket."""

from __future__ import annotations

import errno
import os
import socket
import stat

from clisup.errors import ConfigurationError, WorldError
from clisup.host.files import storage_error
from clisup.host.locks import FileLock
from clisup.host.safe_paths import make_safe_dir
from clisup.host.sockets.peers import is_gone, peer_of
from clisup.locations import SOCKET_PATH_LIMIT

__all__ = ["BACKLOG", "bind_listener", "claim_socket", "take_lock"]

BACKLOG = 1024  # a restart in place takes a second or two, and new clients then wait here


def take_lock(path: str, what: str, inherited: int | None = None) -> FileLock:
    """Take a lock for as long as the daemon lives.

    Raises `WorldError(daemon_already_running)` with the holder's pid.
    """
    lock = FileLock(path, inherited)
    holder = lock.acquire()
    if holder is not None:
        raise WorldError(
            f"cannot start, because pid {holder} serves this {what} already ({path})",
            kind="daemon_already_running",
            hint="stop it first (clisup stop), or give another --socket and --state-dir",
            pid=holder,
        )
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
