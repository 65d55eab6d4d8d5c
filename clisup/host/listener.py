"""The daemon's socket: in a private directory, 0600 from its first moment, one daemon for each."""

from __future__ import annotations

import os
import socket
import stat

from clisup.errors import ConfigurationError, WorldError
from clisup.host.files import make_private_dir, storage_error
from clisup.host.locks import FileLock
from clisup.locations import SOCKET_PATH_LIMIT

__all__ = ["BACKLOG", "bind_listener", "claim_socket", "take_lock"]

_ACCEPTS = 0x10000  # __SO_ACCEPTCON in the flags of /proc/net/unix (proc(5))
BACKLOG = 1024  # a restart in place takes a second or two, and who connects then waits here


def take_lock(path: str, what: str, inherited: int | None = None) -> FileLock:
    """Take a lock for as long as the daemon lives. Raises `WorldError(daemon_already_running)` that names the holder."""
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
    """The socket's directory, made where it is not there, and the lock beside the socket.

    Raises `WorldError(daemon_already_running)`, and `ConfigurationError` where nothing can be made at this place: it is not the
    state directory's, which a failure of storage would blame.
    """
    _check_length(path)
    try:
        make_private_dir(os.path.dirname(path))
        return take_lock(f"{path}.lock", "socket", inherited)
    except WorldError as error:
        if error.kind != "storage_failed":
            raise
        raise ConfigurationError(
            f"cannot listen on {path}, because its directory cannot be used: {os.strerror(int(error.data['errno']))}",
            hint="give another --socket, in a directory of your own; see clisup doctor (socket)",
        ) from error


def bind_listener(path: str, inherited: int | None = None) -> socket.socket:
    """Bind and listen. Call it under the socket's lock: then a socket file that is there already is a stale one.

    `inherited` is the listening descriptor of the daemon that was this process before, or systemd's: who connected meanwhile
    waits there.
    Raises `ConfigurationError` for a path that cannot be used, `WorldError(storage_failed)` where the system refuses.
    """
    _check_length(path)
    if inherited is not None:
        return socket.socket(fileno=inherited)
    _check_directory(os.path.dirname(path))
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
            os.rename(scratch, path)  # a client finds the old socket or one that is served, never none
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
        )


def _check_directory(directory: str) -> None:
    """Ours alone: another user's directory, or one that others may write to, could swap the socket."""
    make_private_dir(directory)
    info = os.stat(directory)
    for owner in (os.lstat(directory).st_uid, info.st_uid):  # who owns a symbolic link may turn it elsewhere
        if owner not in (os.geteuid(), 0):
            raise ConfigurationError(
                f"cannot listen in {directory}, because it belongs to uid {owner}", hint="use your own"
            )
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(
            f"cannot listen in {directory}, because others may write to it",
            hint=f"chmod 700 {directory}, or use another",
        )


def _check_place(path: str) -> None:
    """What is there already may be a stale socket; anything else is somebody's file, and would be replaced."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(
            f"cannot listen on {path}, because something that is no socket is there",
            hint="move it away, or give another --socket",
        )


def _check_nobody_listens(path: str) -> None:
    """Under the lock no clisup can; but systemd does where the socket unit is up, and would be cut off from its clients.

    A daemon of ours that was killed is not found here: it has bound a scratch name, and the kernel shows that one (unix(7)).
    """
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.split(maxsplit=7) for line in file]
    except OSError:
        return
    if any(len(row) == 8 and int(row[3], 16) & _ACCEPTS and row[7].rstrip("\n") == path for row in rows[1:]):
        raise ConfigurationError(
            f"cannot listen on {path}, because another process does (systemd, for clisup.socket?)",
            hint="systemctl --user start clisup, or stop clisup.socket first; or give another --socket",
        )


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
