"""Permissions of a member in the engine, by its roles. Pure.

The subjects of a member end in its name or contain it, so that the engine proves who wrote a record and who calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clisup.fleet.member import Role

__all__ = ["MemberPermissions", "permissions_of"]

READING = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.CONSUMER.CREATE.>",
           "$JS.API.CONSUMER.MSG.NEXT.>")  # fmt: skip
"""Subjects of a reader: states of streams, last messages, and consumers that acknowledge nothing."""


class MemberPermissions(NamedTuple):
    """Subjects that a member may publish and subscribe, and whether it may answer calls."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool


def permissions_of(name: str, roles: Iterable[Role]) -> MemberPermissions:
    """Return the permissions of a member with these roles."""
    roles = set(roles)
    if "admin" in roles:
        return MemberPermissions((">",), (">",), True)
    publish, subscribe = [*READING, f"clisup.rpc.*.observe.{name}"], [f"_INBOX_{name}.>"]
    if "operator" in roles:
        publish += [f"clisup.rpc.*.drive.{name}", f"clisup.job.{name}.>", "$KV.JOBS.>"]
    if "worker" in roles:
        publish += [f"clisup.ev.{name}.>", f"$KV.BOXES.{name}", f"$KV.SESSIONS.{name}.>", "$KV.JOBS.>", "$KV.HOLDS.>"]
        subscribe.append(f"clisup.rpc.{name}.>")
    return MemberPermissions(tuple(dict.fromkeys(publish)), tuple(subscribe), "worker" in roles)
