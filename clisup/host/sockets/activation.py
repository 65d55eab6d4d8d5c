"""Socket activation, sd_listen_fds(3): the listening socket that systemd holds and this daemon serves."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping

from clisup.errors import ConfigurationError

__all__ = ["ACTIVATED", "activated_descriptors", "activated_path", "without_activation"]

ACTIVATED = "activated"
"""Name of the activated socket among the descriptors that a restart in place hands on."""

FIRST_FD = 3
_NAMES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
_UNIT = "see clisup.socket: one ListenStream= with a path, SocketMode=0600"


def activated_descriptors(env: Mapping[str, str]) -> dict[str, int]:
    """Return `{"activated": 3}` if systemd passed a socket to this very process, else an empty dict.

    No child inherits the socket. The pid stays the same across a re-execution. Raises `ConfigurationError` for more
    than one socket.
    """
    if env.get("LISTEN_PID") != str(os.getpid()) or not env.get("LISTEN_FDS", "").isdecimal():
        return {}
    count = int(env["LISTEN_FDS"])
    for fd in range(FIRST_FD, FIRST_FD + count):
        os.set_inheritable(fd, False)
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
