"""Paths of the sockets that the fleet's agent opens on this box, beside the daemon's own socket."""

from __future__ import annotations

import os
from collections.abc import Mapping

from clisup.errors import ConfigurationError
from clisup.locations import SOCKET_PATH_LIMIT, box_of, socket_for_client

__all__ = ["agent_socket", "own_socket", "sockets_dir"]


def own_socket(env: Mapping[str, str], uid: int) -> str:
    """Return the socket of this machine's daemon, whatever box `CLISUP_ON` names."""
    here = {name: value for name, value in env.items() if name != "CLISUP_ON"}
    path = socket_for_client(here, uid)
    assert not box_of(path)
    return path


def agent_socket(env: Mapping[str, str], uid: int) -> str:
    """Return the socket on which the agent answers about the fleet. Raises `ConfigurationError` for a path that is too long."""
    return _checked(os.path.join(os.path.dirname(own_socket(env, uid)), "fleet.sock"))


def sockets_dir(env: Mapping[str, str], uid: int) -> str:
    """Return the directory with a socket for each other member."""
    return os.path.join(os.path.dirname(own_socket(env, uid)), "fleet")


def _checked(path: str) -> str:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise ConfigurationError(
            f"cannot open the socket {path}, because it has more than {SOCKET_PATH_LIMIT} bytes",
            hint="set a shorter directory: CLISUP_SOCKET, or daemon.socket in the configuration",
        )
    return path
