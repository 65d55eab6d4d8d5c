"""Peers of connections: credentials from the kernel (SO_PEERCRED, unix(7)), and whether a CLI of ours started the peer.

Two signs show that a keeper started a process. First, its parents lead to a keeper. Second, its hard limit
RLIMIT_RTTIME is below this process's own. A keeper lowers that limit slightly for its CLI, and every descendant
inherits the limit. Only a process with CAP_SYS_RESOURCE can raise it again. The parents identify root's tools. The
limit identifies tools that have lost their keeper or that /proc does not show (docs/decisions/0056).
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from clisup.host.process.carrying import first_limit

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
