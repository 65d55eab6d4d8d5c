"""Peer of a connection: its credentials by the kernel's word (SO_PEERCRED, unix(7)), and whether a CLI of ours started it.

Two signs tell that a keeper started a process. Its parents lead to a keeper. Or its hard limit RLIMIT_RTTIME is below this
process's own: a keeper lowers that limit by a hair for its CLI, every descendant inherits it, and only a process with
CAP_SYS_RESOURCE can raise it again. The parents hold for root's tools, the limit for tools that have lost their keeper or
that /proc does not show (docs/decisions/0056).
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from clisup.host.process.carrying import first_limit

__all__ = ["Peer", "comes_from", "is_gone", "is_marked", "own_uids", "parent_of", "peer_of"]

MAX_DEPTH = 1000
"""Parents that are looked at. A deeper process counts as started by a keeper: no honest client is nested so deep."""
WALKS = 5  # up a process tree that changes
_UCRED = struct.Struct("3i")
_ENDLESS = resource.RLIM_INFINITY
_OWN_LIMIT = first_limit()


class Peer(NamedTuple):
    """Credentials as they were when the peer connected."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return the credentials of a connected Unix socket's other end."""
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def own_uids() -> tuple[int, ...]:
    """Return the uids that version 1 of the protocol serves: the daemon's own, and root."""
    return (os.geteuid(), 0)


def comes_from(pid: int, keepers: Collection[int], reaper: int = 0) -> bool:
    """Tell whether a CLI below one of `keepers`, or below one that is gone by now, may have started `pid`.

    `reaper` is the daemon's pid where it is the subreaper of its tree: what a killed keeper leaves is its child.

    The answer is yes wherever that cannot be told, with one exception: a pid of 0 belongs to a process of a pid namespace that
    cannot be seen from here, and a keeper starts none of these. Raises `OSError` where no descriptor is left to look with.
    """
    for _ in range(WALKS):
        if (found := _walk(pid, keepers, reaper)) is not None:
            return found
    return bool(keepers)  # a process that connects for its child and leaves is no stranger


def _walk(pid: int, keepers: Collection[int], reaper: int) -> bool | None:
    """Go from `pid` to its parents. None where one of them left meanwhile: its children have a new parent by now."""
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

    With hidepid= another user's processes are hidden, where the own tree of a daemon ends, and those of the same user that
    cannot be dumped: sshd's for each login, and whatever a tool makes so.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return False
    return marked is None


def is_gone(pid: int) -> bool:
    """Tell whether there is no such process. /proc would say so, too, of one that hidepid= hides. 0 stands for one that lives."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # a number that is too large comes from the name of a file
        return True
    except PermissionError:
        pass
    return False


def is_marked(pid: int) -> bool | None:
    """Tell whether a keeper has lowered the limit of this process. None where the kernel does not tell: another user's, or gone."""
    try:
        limit = resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except OSError:
        return None
    return limit != _ENDLESS and (_OWN_LIMIT == _ENDLESS or limit < _OWN_LIMIT)


def parent_of(pid: int) -> int:
    """Return the parent's pid, 0 where it has none here. Raises `OSError` where /proc does not show the process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read()
    return int(fields[fields.rindex(b")") + 2 :].split()[1])  # the name before it is in brackets and may hold anything
