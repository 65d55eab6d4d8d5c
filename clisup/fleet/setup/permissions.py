"""Permissions of a member in the engine, by its roles. Pure.

The subjects that a member may write have its name in them, so that the engine proves who wrote a record and who calls.
A permission of a subject alone proves nothing: the engine sends its own answers to any reply subject that a client
names. So each member has an account of its own (`clisup.fleet.setup.nodes`), and these subjects are all that its account
imports from the fleet's account.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clisup.fleet.member import Role

__all__ = ["API", "CALLS", "MEMBER_API", "MEMBER_CALLS", "MemberPermissions", "permissions_of"]

API, MEMBER_API = "$JS.API", "clisup.js"
"""Prefix of the engine's own methods, and its name in the account of a member. There the first one is taken."""
CALLS, MEMBER_CALLS = "clisup.rpc", "clisup.serve"
"""Prefix of the calls of a box, and its name in the account of the box. With one name a box that also calls is a cycle."""
_INFO = (f"{API}.INFO", f"{API}.STREAM.INFO.*")
_LOOKING = (*_INFO, f"{API}.STREAM.MSG.GET.*", f"{API}.DIRECT.GET.>", f"{API}.CONSUMER.CREATE.>",
            f"{API}.CONSUMER.MSG.NEXT.>")  # fmt: skip
"""Subjects of a member that may look: it reads every stream."""
_JOBS = (("CLISUP_JOB", "clisup.job.>"), ("CLISUP_STATE", "clisup.state.>"), ("KV_BOXES", "$KV.BOXES.>"))
_HOLDS = ("KV_HOLDS", "$KV.HOLDS.>")


class MemberPermissions(NamedTuple):
    """Subjects that a member may publish and subscribe. `answers`: it answers the calls of others."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool


def permissions_of(name: str, roles: Iterable[Role]) -> MemberPermissions:
    """Return the permissions of a member with these roles."""
    roles = set(roles)
    if "admin" in roles:
        return MemberPermissions((">",), (">",), True)
    publish, subscribe = list(_INFO), [f"_INBOX_{name}.>"]
    if roles & {"observer", "operator"}:
        publish += [*_LOOKING, f"clisup.rpc.*.observe.{name}"]
    if "operator" in roles:
        publish += [f"clisup.rpc.*.drive.{name}", f"clisup.job.{name}.*", f"clisup.state.*.submit.{name}"]
    if "worker" in roles:
        publish += _working(name)
        subscribe.append(f"{MEMBER_CALLS}.{name}.>")
    return MemberPermissions(_without_covered(publish), tuple(subscribe), "worker" in roles)


def _working(name: str) -> list[str]:
    """Return what a worker publishes: its own records, and requests to read jobs, beats, holds and its own records."""
    own = [f"clisup.ev.{name}.>", f"$KV.BOXES.{name}", f"$KV.SESSIONS.{name}.*"]
    own += [f"$KV.HOLDS.*.work.{name}", f"clisup.state.*.work.{name}"]
    rows = ("KV_SESSIONS", f"$KV.SESSIONS.{name}.>")
    for stream, subjects in (*_JOBS, _HOLDS, rows):
        own += [f"{API}.CONSUMER.CREATE.{stream}.*.{subjects}", f"{API}.CONSUMER.MSG.NEXT.{stream}.*"]
    own += [f"{API}.STREAM.MSG.GET.{stream}" for stream, _ in (*_JOBS, _HOLDS)]
    return [*own, f"{API}.DIRECT.GET.CLISUP_EV.clisup.ev.{name}.>", f"{API}.DIRECT.GET.KV_SESSIONS.{rows[1]}"]


def _without_covered(subjects: list[str]) -> tuple[str, ...]:
    """Return the subjects, each once, without those that another one covers. An account refuses to import twice."""
    once = list(dict.fromkeys(subjects))
    return tuple(one for one in once if not any(one != other and _covers(other, one) for other in once))


def _covers(pattern: str, subject: str) -> bool:
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(w in (f, "*") for w, f in zip(wanted, found, strict=True))
