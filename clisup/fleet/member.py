"""File with which this box joins a fleet: its name there, its key, and the engine's nodes.

`clisup fleet init` and `clisup fleet member add` write such files, and `clisup fleet join` takes one. The standard library
alone, because commands load this module to find the boxes of a fleet.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from clisup.errors import ConfigurationError, UsageError
from clisup.fleet.boxes import check_name
from clisup.host.files import make_private_dir, write_atomic
from clisup.locations import config_home

__all__ = ["FleetMember", "MemberKey", "Role", "joined", "member_file", "read_member", "remove_member", "write_member"]

MAX_FILE = 256 * 1024
MAX_SERVERS = 16

Role = Literal["worker", "observer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)


class MemberKey:
    """Secret key of a member. It has no string form."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the key, for the engine's client."""
        return self._text

    def __repr__(self) -> str:
        return "MemberKey(...)"


class FleetMember(NamedTuple):
    """Member of a fleet. `servers` are URLs such as tls://hub:4222; `ca` is the PEM text of their CA, or empty."""

    fleet: str
    name: str
    roles: frozenset[Role]
    servers: tuple[str, ...]
    key: MemberKey
    ca: str = ""


def member_file(env: Mapping[str, str]) -> str:
    """Return the path of this box's file."""
    return os.path.join(config_home(env), "clisup", "fleet-member.json")


def joined(env: Mapping[str, str]) -> FleetMember | None:
    """Return this box as a member, or None for a box without a fleet. Raises `ConfigurationError` for a damaged file."""
    path = member_file(env)
    return read_member(path) if os.path.lexists(path) else None


def read_member(path: str) -> FleetMember:
    """Read a member's file. Raises `ConfigurationError` for a file that is damaged, or that others can read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_FILE + 1)
    except OSError as error:
        raise _unusable(path, error.strerror or "it cannot be read") from None
    if stat.S_IMODE(mode) & 0o077:
        raise _unusable(path, "other users can read it", hint=f"chmod 600 {path}")
    if len(text) > MAX_FILE:
        raise _unusable(path, f"it has more than {MAX_FILE} bytes")
    try:
        return _member(json.loads(text))
    except UsageError as error:
        raise _unusable(path, error.message) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _unusable(path, "it is no member's file of a fleet") from None


def _member(row: dict[str, Any]) -> FleetMember:
    roles, servers = frozenset(row["roles"]), tuple(row["servers"])
    strings = (row["fleet"], row["key"], row.get("ca", ""), *servers)
    if not all(isinstance(text, str) for text in strings):
        raise TypeError
    if not roles or not roles <= set(ROLES) or not 0 < len(servers) <= MAX_SERVERS or not row["key"]:
        raise ValueError
    return FleetMember(row["fleet"], check_name(row["name"]), roles, servers, MemberKey(row["key"]), row.get("ca", ""))


def write_member(path: str, member: FleetMember) -> None:
    """Write a member's file, which only its owner can read. Raises `WorldError(storage_failed)`."""
    make_private_dir(os.path.dirname(path))
    row = {
        "fleet": member.fleet,
        "name": member.name,
        "roles": sorted(member.roles),
        "servers": list(member.servers),
        "key": member.key.reveal(),
        "ca": member.ca,
    }
    write_atomic(path, json.dumps(row, indent=1).encode() + b"\n")


def remove_member(env: Mapping[str, str]) -> None:
    """Remove this box's file. Raises `UsageError` for a box without a fleet."""
    try:
        os.unlink(member_file(env))
    except FileNotFoundError:
        raise UsageError("this box has joined no fleet", hint="clisup fleet join FILE") from None


def _unusable(path: str, reason: str, *, hint: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"cannot use the member's file {path}, because {reason}",
        hint=hint or "join the fleet again: clisup fleet join FILE",
    )
