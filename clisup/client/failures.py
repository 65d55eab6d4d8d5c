"""Errors of the clients: the daemon is missing, stale, forbidden, too slow, or gone during a call."""

from __future__ import annotations

import errno
import os
import stat
from typing import NoReturn

from clisup.errors import ClisupError, UsageError, WorldError, box_away
from clisup.locations import SOCKET_PATH_LIMIT, box_of

__all__ = [
    "AWAY",
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

OCCUPIED = "it is starting, stuck, or listens at another socket (CLISUP_SOCKET=... names one)"
"""Explanation for a daemon that holds the state directory and does not answer."""


AWAY = ("daemon_not_running", "box_away")
"""Kinds of errors of a daemon that is not there."""


class ConnectionLost(WorldError):
    """The daemon went away. With a cursor or a key of a prompt, connecting again loses and repeats nothing."""

    kind = "daemon_not_running"


class Unreachable(WorldError):
    """No process answers at the socket."""

    kind = "daemon_not_running"


def lost(path: str, reason: str = "it closed the connection") -> ConnectionLost:
    """Return the error for a connection that ended before an answer or an event."""
    if box := box_of(path):
        return ConnectionLost(
            f"cannot hear box {box}, because {reason}",
            kind="box_away",
            hint=f"see whether it answers: clisup fleet test {box}",
            box=box,
            reason=reason,
        )
    return ConnectionLost(
        f"cannot hear the daemon at {path}, because {reason}", hint="see whether it runs: clisup status"
    )


def hung_up(method: str, why: str) -> ClisupError:
    """Return the error for a call of a closed client."""
    return UsageError(
        f"cannot call {method} with this client, because {why}",
        kind="usage",
        hint="open another one, or call it before",
    )


def path_too_long(path: str) -> ClisupError:
    """Return the error for a path that does not fit into `sun_path`."""
    size = len(os.fsencode(path))
    return UsageError(
        f"cannot use the socket path {path}, because it has {size} bytes and a Unix socket takes {SOCKET_PATH_LIMIT}",
        kind="configuration",
        hint="choose a shorter one: CLISUP_SOCKET=/run/user/$UID/clisup.sock",
    )


def too_slow(path: str, method: str, seconds: float) -> ClisupError:
    """Return the error for a daemon that accepts connections and does not answer: stopped, paused or overloaded."""
    if method == "initialize" and (box := box_of(path)):
        return box_away(box, f"no answer came within {seconds:g} s")
    return WorldError(
        f"cannot get an answer to {method} from the daemon at {path}, because none came within {seconds:g} s",
        kind="overloaded",
        hint="try again; a daemon that stays silent is paused or stuck, its log says more",
    )


def not_json(path: str) -> ClisupError:
    """Return the error for another program at the socket."""
    return WorldError(
        f"cannot understand what listens at {path}, because its answer is not JSON-RPC",
        hint="check CLISUP_SOCKET and daemon.socket in the configuration",
    )


def no_json(method: str, error: Exception) -> ClisupError:
    """Return the error for params that are not JSON; `error` is raised by `json`."""
    why = {
        UnicodeEncodeError: "a text in them holds half of a surrogate pair",
        RecursionError: "they are nested too deeply",
    }.get(type(error), str(error))
    return UsageError(
        f"cannot send {method}, because its params are no JSON: {why}",
        hint="give texts, finite numbers, lists and dicts; of a path str(path)",
    )


def too_large(limit: int) -> ClisupError:
    """Return the daemon's refusal of a large frame. Sending the frame would end the connection of other calls, too."""
    return UsageError(
        f"the frame has more than {limit} bytes",
        kind="invalid_request",
        hint="send less, or raise daemon.max_frame_bytes",
        limit="max_frame_bytes",
        value=limit,
    )


def refuse_flood(path: str, limit: int) -> NoReturn:
    """Raise the error for a line that is longer than this client may hold in memory."""
    raise WorldError(
        f"cannot hold more from the daemon at {path}, because {limit} bytes without a line end are the limit"
    )


def cannot_connect(path: str, error: OSError, box: str = "") -> ClisupError:
    """Return the error for a missing, a stale or a forbidden socket, which is that of a `box` if one is named."""
    if box:
        failure = cannot_connect(path, error)
        return failure if failure.kind == "permission_denied" else box_away(box, failure.message, failure.hint)
    if error.errno in (errno.EACCES, errno.EPERM):
        return _forbidden(path)
    if error.errno in (errno.EAGAIN, errno.ETIMEDOUT) or isinstance(error, TimeoutError):
        return too_slow(path, "connect", 0)
    hint = "start it: clisup start"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        reason = "nothing listens there"
    elif error.errno != errno.ECONNREFUSED:
        reason = error.strerror or "the system refused"
    elif _is_socket(path):
        reason = "nothing listens there (a daemon that is gone left the socket behind)"
    else:
        reason, hint = "that file is not a socket", "check CLISUP_SOCKET and daemon.socket in the configuration"
    return Unreachable(f"cannot reach the daemon at {path}, because {reason}", hint=hint)


def _forbidden(path: str) -> ClisupError:
    return WorldError(
        f"cannot reach the daemon at {path}, because uid {os.getuid()} may not open the socket{_owner(path)}",
        kind="permission_denied",
        hint="run clisup as the daemon's user, or point CLISUP_SOCKET at a daemon of your own",
    )


def foreign(path: str, uid: int) -> ClisupError:
    """Return the error for a socket at which another user's process listens."""
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
