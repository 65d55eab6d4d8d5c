"""Configuration files of the engine's nodes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from clisup.fleet.member import Role
from clisup.fleet.setup.permissions import permissions_of

__all__ = ["CLUSTER_OFFSET", "FleetPlan", "KnownMember", "is_loopback", "members_text", "node_text"]

CLUSTER_OFFSET = 2000
"""Distance between the port for members and the port between nodes: 4222 and 6222."""
MAX_PAYLOAD = 1024 * 1024
ANSWER_S = 60


class KnownMember(NamedTuple):
    """Member as the nodes know it: its public key and its roles."""

    public: str
    roles: tuple[Role, ...]


class FleetPlan(NamedTuple):
    """Fleet: its name, the hosts of its nodes, their port, and its members by name."""

    name: str
    nodes: tuple[str, ...]
    port: int
    members: Mapping[str, KnownMember]

    @property
    def encrypted(self) -> bool:
        """Tell whether the connections need TLS: all but those of a single node on this machine."""
        return not (len(self.nodes) == 1 and is_loopback(self.nodes[0]))

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the URLs of the nodes for members."""
        scheme = "tls" if self.encrypted else "nats"
        return tuple(f"{scheme}://{host}:{self.port}" for host in self.nodes)


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine."""
    return host == "localhost" or host.startswith("127.")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def node_text(plan: FleetPlan, host: str) -> str:
    """Return the configuration of a node. Its paths are relative to the folder in which the node runs.

    A node that is named by its address listens only there.
    """
    listen = host if is_loopback(host) or _is_address(host) else "0.0.0.0"
    tls = 'tls { cert_file: "node.crt", key_file: "node.key", ca_file: "ca.crt" }\n' if plan.encrypted else ""
    return (
        f"# A node of the fleet {plan.name}, made by clisup fleet init. Run it: clisup fleet node FOLDER\n"
        f"server_name: {_quoted(host)}\n"
        f"listen: {_quoted(f'{listen}:{plan.port}')}\n"
        f"max_payload: {MAX_PAYLOAD}\n"
        'jetstream { store_dir: "store", sync_interval: always }\n'
        f'{tls}include "members.conf"\n' + (_cluster(plan, host, listen) if len(plan.nodes) > 1 else "")
    )


def _cluster(plan: FleetPlan, host: str, listen: str) -> str:
    port = plan.port + CLUSTER_OFFSET
    routes = ", ".join(_quoted(f"tls://{other}:{port}") for other in plan.nodes if other != host)
    tls = 'tls { cert_file: "node.crt", key_file: "node.key", ca_file: "ca.crt", verify: true }'
    return f"cluster {{\n  name: {_quoted(plan.name)}\n  listen: {_quoted(f'{listen}:{port}')}\n  routes: [{routes}]\n  {tls}\n}}\n"


def members_text(members: Mapping[str, KnownMember]) -> str:
    """Return the file with the keys and permissions of all members. It is the same for all nodes."""
    users = "".join(_user(name, member) for name, member in sorted(members.items()))
    head = "# Members of the fleet, made by clisup fleet member. All nodes have the same file."
    return f"{head}\nauthorization {{\n  users: [\n{users}  ]\n}}\n"


def _user(name: str, member: KnownMember) -> str:
    given = permissions_of(name, member.roles)
    answers = f', allow_responses: {{ max: 1, expires: "{ANSWER_S}s" }}' if given.answers else ""
    return (
        f"    # {name}: {', '.join(member.roles)}\n"
        f"    {{ nkey: {member.public}, permissions: {{ publish: {{ allow: {_list(given.publish)} }}, "
        f"subscribe: {{ allow: {_list(given.subscribe)} }}{answers} }} }}\n"
    )


def _list(subjects: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, subjects))}]"


def _quoted(text: str) -> str:
    return json.dumps(text)
