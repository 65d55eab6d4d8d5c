"""Folder of a fleet on the admin's machine: its plan, its CA, the folders of its nodes, and the members' files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence

from clisup.errors import ConfigurationError, UsageError
from clisup.fleet.boxes import check_name
from clisup.fleet.member import ROLES, FleetMember, Role, write_member
from clisup.fleet.setup.certificates import make_ca, make_certificate
from clisup.fleet.setup.keys import new_key
from clisup.fleet.setup.nodes import CLUSTER_OFFSET, FleetPlan, KnownMember, members_text, node_text
from clisup.host.files import make_private_dir, write_atomic

__all__ = ["ADMIN", "MAX_MEMBERS", "add_member", "found", "read_plan", "remove_member_of", "renew"]

ADMIN = "admin"
"""Member that `found` makes: it prepares the streams, and is kept off the boxes."""
MAX_MEMBERS, MAX_NODES = 200, 5
MAX_FILE = 1024 * 1024
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def found(directory: str, name: str, nodes: Sequence[str], port: int) -> FleetPlan:
    """Make the folder of a new fleet. Raises `UsageError(usage)` for a folder that exists, and for bad names."""
    if not _NAME.fullmatch(name):
        raise _wrong(f"cannot use the name {name!r}", "it is not 1 to 32 of a-z, 0-9 and -")
    if not nodes or len(nodes) > MAX_NODES or len(set(nodes)) != len(nodes) or len(nodes) % 2 == 0:
        raise _wrong(
            f"cannot found a fleet with {len(nodes)} nodes", "it needs 1, 3 or 5 different ones: most of them must run"
        )
    if bad := [host for host in nodes if not _HOST.fullmatch(host)]:
        raise _wrong(f"cannot use the node {bad[0]!r}", "it is no host name and no address")
    if not 0 < port < 65536 - CLUSTER_OFFSET:
        raise _wrong(f"cannot use the port {port}", f"it is not below {65536 - CLUSTER_OFFSET}")
    if os.path.lexists(directory):
        raise _wrong(f"cannot make the folder {directory}", "it exists: choose another with --dir")
    plan = FleetPlan(name, tuple(nodes), port, {})
    try:
        make_private_dir(directory)
        if plan.encrypted:
            make_ca(name, directory)
        for host in nodes:
            _make_node(plan, host, directory)
        return add_member(directory, ADMIN, ["admin"], plan)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _make_node(plan: FleetPlan, host: str, directory: str) -> None:
    folder = os.path.join(directory, host)
    make_private_dir(folder)
    if plan.encrypted:
        make_certificate(host, directory, folder)
        shutil.copyfile(os.path.join(directory, "ca.crt"), os.path.join(folder, "ca.crt"))
    write_atomic(os.path.join(folder, "nats.conf"), node_text(plan, host).encode())


def add_member(directory: str, name: str, roles: Sequence[Role], plan: FleetPlan | None = None) -> FleetPlan:
    """Add a member: write its file, and its key for all nodes. Raises `UsageError(usage)` for a name that is taken."""
    plan = plan or read_plan(directory)
    check_name(name)
    if name in plan.members:
        raise _wrong(f"cannot add {name}", f"the fleet {plan.name} has a member of this name")
    if len(plan.members) >= MAX_MEMBERS:
        raise _wrong(f"cannot add {name}", f"{MAX_MEMBERS} members are the most: use the engine's own accounts beyond")
    pair = new_key()
    member = FleetMember(plan.name, name, frozenset(roles), plan.servers, pair.key, _ca(plan, directory))
    write_member(os.path.join(directory, f"{name}.member"), member)
    plan = plan._replace(members={**plan.members, name: KnownMember(pair.public, tuple(sorted(roles)))})
    _write(directory, plan)
    return plan


def remove_member_of(directory: str, name: str) -> FleetPlan:
    """Remove a member: its key from all nodes, and its file. Raises `UsageError(usage)` for an unknown name."""
    plan = read_plan(directory)
    if name not in plan.members:
        raise _wrong(f"cannot remove {name}", f"the fleet {plan.name} has no such member")
    plan = plan._replace(members={other: member for other, member in plan.members.items() if other != name})
    _write(directory, plan)
    path = os.path.join(directory, f"{name}.member")
    if os.path.exists(path):
        os.unlink(path)
    return plan


def renew(directory: str, name: str) -> bool:
    """Write the members' permissions again if this is the folder of the fleet `name`. Tell whether they have changed."""
    if not os.path.exists(os.path.join(directory, "fleet.json")):
        return False
    plan = read_plan(directory)
    text = members_text(plan.members).encode()
    changed = [host for host in plan.nodes if _content(os.path.join(directory, host, "members.conf")) != text]
    if plan.name != name or not changed:
        return False
    _write(directory, plan)
    return True


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_plan(directory: str) -> FleetPlan:
    """Read the plan of a fleet's folder. Raises `ConfigurationError` for another folder."""
    path = os.path.join(directory, "fleet.json")
    try:
        with open(path, "rb") as file:
            row = json.loads(file.read(MAX_FILE))
        members = {name: KnownMember(each["public"], tuple(each["roles"])) for name, each in row["members"].items()}
        if any(role not in ROLES for member in members.values() for role in member.roles):
            raise ValueError
        return FleetPlan(row["name"], tuple(row["nodes"]), int(row["port"]), members)
    except OSError as error:
        why = error.strerror or "it cannot be read"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        why = "it is damaged"
    raise ConfigurationError(
        f"cannot use {path}, because {why}", hint="name the folder that clisup fleet init made: --dir FOLDER"
    ) from None


def _write(directory: str, plan: FleetPlan) -> None:
    """Write the plan, and the members' keys into each node's folder."""
    members = {name: {"public": member.public, "roles": list(member.roles)} for name, member in plan.members.items()}
    row = {"name": plan.name, "nodes": list(plan.nodes), "port": plan.port, "members": members}
    text = members_text(plan.members).encode()
    for host in plan.nodes:
        write_atomic(os.path.join(directory, host, "members.conf"), text)
    write_atomic(os.path.join(directory, "fleet.json"), json.dumps(row, indent=1).encode() + b"\n")


def _ca(plan: FleetPlan, directory: str) -> str:
    if not plan.encrypted:
        return ""
    with open(os.path.join(directory, "ca.crt"), encoding="ascii") as file:
        return file.read()


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(f"{what}, because {why}", kind="usage")
