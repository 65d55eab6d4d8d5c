"""What a client says when it cannot talk to the daemon: missing, stale, forbidden, too slow, gone in the middle.

Loaded only when something failed: the way of success does not pay for it.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NoReturn

from clisup.errors import ClisupError, UsageError, WorldError
from clisup.locations import SOCKET_PATH_LIMIT

__all__ = [
    "OCCUPIED",
    "ConnectionLost",
    "Unreachable",
    "cannot_connect",
    "foreign",
    "hung_up",
    "lost",
    "no_json",
    "not_json",
    "path_too_long",
    "refuse_flood",
    "too_large",
    "too_slow",
]

_START = "start it: clisup serve"
OCCUPIED = "it is starting, stuck, or listens at another socket (CLISUP_SOCKET=... names one)"
"""What a daemon is that holds the state directory, and does not answer."""


class ConnectionLost(WorldError):
    """The daemon was there and went away; with a cursor or a prompt's key, connecting again loses and repeats nothing."""

    kind = "daemon_not_running"


class Unreachable(WorldError):
    """Nothing answers at the socket, so far as the socket tells."""

    kind = "daemon_not_running"


def lost(path: str, reason: str = "it closed the connection") -> ConnectionLost:
    """The connection ended where an answer or an event was still to come."""
    return ConnectionLost(
        f"cannot hear the daemon at {path}, because {reason}", hint="see whether it runs: clisup status"
    )


def hung_up(method: str, why: str) -> ClisupError:
    """This client has ended its connection itself."""
    return UsageError(
        f"cannot call {method} with this client, because {why}",
        kind="usage",
        hint="open another one, or call it before",
    )


def path_too_long(path: str) -> ClisupError:
    """`sun_path` cannot hold it."""
    size = len(os.fsencode(path))
    return UsageError(
        f"cannot use the socket path {path}, because it has {size} bytes and a Unix socket takes {SOCKET_PATH_LIMIT}",
        kind="configuration",
        hint="choose a shorter one: CLISUP_SOCKET=/run/user/$UID/clisup.sock",
    )


def too_slow(path: str, method: str, seconds: float) -> ClisupError:
    """Connected, but no answer: a daemon that is stopped, paused or drowning."""
    return WorldError(
        f"cannot get an answer to {method} from the daemon at {path}, because none came within {seconds:g} s",
        kind="overloaded",
        hint="try again; a daemon that stays silent is paused or stuck, its log says more",
    )


def not_json(path: str) -> ClisupError:
    """Something else listens there."""
    return WorldError(
        f"cannot understand what listens at {path}, because its answer is not JSON-RPC",
        hint="check CLISUP_SOCKET and daemon.socket in the configuration",
    )


def no_json(method: str, error: Exception) -> ClisupError:
    """Params that cannot be told; `error` is `json`'s."""
    why = {
        UnicodeEncodeError: "a text in them holds half of a surrogate pair",
        RecursionError: "they are nested too deeply",
    }.get(type(error), str(error))
    return UsageError(
        f"cannot send {method}, because its params are no JSON: {why}",
        hint="give texts, finite numbers, lists and dicts; of a path str(path)",
    )


def too_large(limit: int) -> ClisupError:
    """What the daemon says of such a frame, before it is sent: that would end the connection for the other calls on it, too."""
    return UsageError(
        f"cannot read a frame of more than {limit} bytes",
        kind="invalid_request",
        hint="send less, or raise daemon.max_frame_bytes",
        limit="max_frame_bytes",
        value=limit,
    )


def refuse_flood(path: str, limit: int) -> NoReturn:
    """More came than this client may hold in memory."""
    raise WorldError(
        f"cannot hold more from the daemon at {path}, because {limit} bytes without a line end are the limit"
    )


def cannot_connect(path: str, error: OSError) -> ClisupError:
    """Tell a missing socket, a stale one and a forbidden one apart."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return _forbidden(path)
    if error.errno in (errno.EAGAIN, errno.ETIMEDOUT) or isinstance(error, TimeoutError):
        return too_slow(path, "connect", 0)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return _nobody(path, "nothing listens there", _START)
    if error.errno == errno.ECONNREFUSED and not _is_socket(path):
        return _nobody(path, "that file is not a socket", "check CLISUP_SOCKET and daemon.socket in the configuration")
    if error.errno == errno.ECONNREFUSED:
        return _nobody(path, "nothing listens there (a daemon that is gone left the socket behind)", _START)
    return _nobody(path, error.strerror or "the system refused", _START)


def _nobody(path: str, reason: str, hint: str) -> ClisupError:
    return Unreachable(f"cannot reach the daemon at {path}, because {reason}", hint=hint)


def _forbidden(path: str) -> ClisupError:
    return WorldError(
        f"cannot reach the daemon at {path}, because uid {os.getuid()} may not open the socket{_owner(path)}",
        kind="permission_denied",
        hint="run clisup as the daemon's user, or point CLISUP_SOCKET at a daemon of your own",
    )


def foreign(path: str, uid: int) -> ClisupError:
    """A process of another user listens there."""
    if os.geteuid() == 0:
        hint = f"if you mean that user's daemon, name it: CLISUP_SOCKET={path}"
    else:
        hint = "look who put it there; point CLISUP_SOCKET at a daemon of your own"
    return WorldError(
        f"cannot trust what listens at {path}, because it runs as uid {uid}: nothing was sent",
        kind="permission_denied",
        hint=hint,
    )


def _owner(path: str) -> str:
    try:
        return f" (it belongs to uid {os.stat(path).st_uid})"
    except OSError:  # its directory is closed to us as well
        return ""


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return True
