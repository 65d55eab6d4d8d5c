"""Who is at the other end of a connection, by the kernel's word (SO_PEERCRED, unix(7)), and whose child it is."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

__all__ = ["Peer", "ancestors", "descends_from", "peer_of"]

_UCRED = struct.Struct("3i")
_MAX_DEPTH = 256


class Peer(NamedTuple):
    """Credentials as they were when the peer connected."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """The credentials of a connected Unix socket's other end."""
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def ancestors(pid: int) -> list[int]:
    """`pid` and its parents up to pid 1, as far as /proc shows them. Raises `OSError` where it cannot be asked: no descriptor is left."""
    chain: list[int] = []
    while pid > 1 and pid not in chain and len(chain) < _MAX_DEPTH:
        chain.append(pid)
        pid = _parent(pid)
    return chain


def descends_from(pid: int, roots: Collection[int]) -> bool:
    """Is `pid` one of `roots` or a descendant of one? A model's own tool must not speak for the user."""
    return any(ancestor in roots for ancestor in ancestors(pid))


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return int(fields[fields.rindex(b")") + 2 :].split()[1])


def own_uids() -> tuple[int, ...]:
    """The uids that version 1 of the protocol serves: the daemon's own, and root."""
    return (os.geteuid(), 0)
