"""Settings of the agent: this box as a member, the table `[fleet]`, and the places of the daemon."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clisup.config.tables import FleetConfig
from clisup.errors import UsageError
from clisup.fleet.member import FleetMember, joined
from clisup.fleet.places import agent_socket, own_socket, sockets_dir
from clisup.fleet.tunnel import may_send
from clisup.host.config_file import ConfigFile
from clisup.host.files import write_atomic
from clisup.locations import config_file, state_dir_for_client

__all__ = ["AgentSettings", "incarnation_of", "read_settings"]


@dataclass(slots=True)
class AgentSettings:
    """Settings that all parts of the agent share. A reload replaces `fleet`."""

    member: FleetMember
    fleet: FleetConfig
    state_dir: str
    daemon_socket: str
    agent_socket: str
    sockets_dir: str
    incarnation: str
    read_fleet: Callable[[], FleetConfig]

    @property
    def works(self) -> bool:
        """Tell whether this box shares its daemon."""
        return "worker" in self.member.roles

    @property
    def looks(self) -> bool:
        """Tell whether this box may read the sessions of other boxes."""
        return may_send("observe", self.member.roles)


def read_settings(env: Mapping[str, str]) -> AgentSettings:
    """Return the settings. Raises `UsageError` for a box without a fleet, and `ConfigurationError`."""
    member = joined(env)
    if member is None:
        raise UsageError("this box has joined no fleet", hint="clisup fleet join FILE (docs/how-to/fleet-engine.md)")
    uid = os.getuid()
    file = ConfigFile(config_file(env), "CLISUP_CONFIG" in env)
    state_dir = state_dir_for_client(env, uid)
    return AgentSettings(
        member,
        file.read().fleet,
        state_dir,
        own_socket(env, uid),
        agent_socket(env, uid),
        sockets_dir(env, uid),
        incarnation_of(state_dir),
        lambda: file.read().fleet,
    )


def incarnation_of(state_dir: str) -> str:
    """Return the random word of a state directory, which another directory does not have. Write it the first time.

    Raises `WorldError(storage_failed)`.
    """
    path = os.path.join(state_dir, "fleet-incarnation")
    try:
        with open(path, encoding="ascii") as file:
            if word := file.read(64).strip():
                return word
    except (OSError, ValueError):
        pass
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    word = secrets.token_hex(8)
    write_atomic(path, word.encode() + b"\n")
    return word
