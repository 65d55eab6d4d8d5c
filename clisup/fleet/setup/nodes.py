"""Configuration files of the engine's nodes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from clisup.fleet.member import Role
from clisup.fleet.setup.permissions import API, CALLS, MEMBER_API, MEMBER_CALLS, permissions_of

__all__ = ["CLUSTER_OFFSET", "FleetPlan", "KnownMember", "is_loopback", "members_text", "node_text"]

CLUSTER_OFFSET = 2000
"""Distance between the port for members and the port between nodes: 4222 and 6222."""
MAX_PAYLOAD = 1024 * 1024
ANSWER_S = 60
_ACCOUNT = "FLEET"
"""Account with the streams. No member but the admin is in it."""
_EXPORTS = (f"{API}.INFO", f"{API}.STREAM.INFO.*", f"{API}.STREAM.MSG.GET.*", f"{API}.DIRECT.GET.>",
            f"{API}.CONSUMER.CREATE.>", "clisup.ev.>", "clisup.job.>", "clisup.state.>", "clisup.rpc.>", "$KV.>")  # fmt: skip
_MANY = f"{API}.CONSUMER.MSG.NEXT.>"
"""Method with more than one answer."""


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
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


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
    """Return the file with the accounts, keys and permissions of all members. It is the same for all nodes.

    Each member is alone in its account, which imports what the member may publish. A reply subject that a member names
    belongs to its account, too. In one account with the streams, an answer of the engine to such a reply would be a
    message that nobody may write: it would change, or delete, the records of others.
    """
    others = {name: member for name, member in sorted(members.items()) if "admin" not in member.roles}
    users = "".join(_user(name, member) for name, member in sorted(members.items()) if name not in others)
    exports = [f"{{ service: {_quoted(subject)} }}" for subject in _EXPORTS]
    exports.append(f"{{ service: {_quoted(_MANY)}, response_type: stream }}")
    boxes = [name for name, member in others.items() if "worker" in member.roles]
    answers = [_import(_account(box), f"{MEMBER_CALLS}.{box}.*.*", f"{CALLS}.{box}.*.*") for box in boxes]
    head = "# Members of the fleet, made by clisup fleet member. All nodes have the same file."
    fleet = f"  {_ACCOUNT}: {{\n    jetstream: enabled\n{users}{_items('exports', exports)}{_items('imports', answers)}  }}\n"
    return f"{head}\naccounts {{\n{fleet}{''.join(_own_account(name, it, boxes) for name, it in others.items())}}}\n"


def _account(name: str) -> str:
    return f"M_{name}"


def _import(account: str, subject: str, to: str = "") -> str:
    mapped = f", to: {_quoted(to)}" if to else ""
    return f"{{ service: {{ account: {_quoted(account)}, subject: {_quoted(subject)} }}{mapped} }}"


def _items(name: str, items: Sequence[str]) -> str:
    return f"    {name}: [\n" + "".join(f"      {item}\n" for item in items) + "    ]\n"


def _own_account(name: str, member: KnownMember, boxes: Sequence[str]) -> str:
    imports = []
    for subject in permissions_of(name, member.roles).publish:
        own = _named_by_member(subject)
        imports += [_import(_ACCOUNT, each, own if own != subject else "") for each in _calls(subject, name, boxes)]
    exports = [f"{{ service: {_quoted(f'{MEMBER_CALLS}.{name}.*.*')}, accounts: [{_ACCOUNT}] }}"]
    calls = _items("exports", exports) if name in boxes else ""
    return f"  {_account(name)}: {{\n{_user(name, member)}{_items('imports', imports)}{calls}  }}\n"


def _calls(subject: str, name: str, boxes: Sequence[str]) -> list[str]:
    """Return the subjects to import for one. A box that also calls names each other box: the engine refuses a cycle."""
    if name not in boxes or not subject.startswith(f"{CALLS}.*."):
        return [subject]
    return [subject.replace("*", other, 1) for other in boxes if other != name]


def _named_by_member(subject: str) -> str:
    return MEMBER_API + subject.removeprefix(API) if subject.startswith(f"{API}.") else subject


def _user(name: str, member: KnownMember) -> str:
    given = permissions_of(name, member.roles)
    publish = [_named_by_member(subject) for subject in given.publish]
    answers = f', allow_responses: {{ max: 1, expires: "{ANSWER_S}s" }}' if given.answers else ""
    return (
        f"    # {name}: {', '.join(member.roles)}\n"
        f"    users: [ {{ nkey: {member.public}, permissions: {{ publish: {{ allow: {_list(publish)} }}, "
        f"subscribe: {{ allow: {_list(given.subscribe)} }}{answers} }} }} ]\n"
    )


def _list(subjects: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, subjects))}]"


def _quoted(text: str) -> str:
    return json.dumps(text)
