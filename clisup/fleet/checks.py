"""Checks of `clisup fleet doctor`, on gathered facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clisup.fleet.agent.records import BoxBeat
from clisup.fleet.engine import STREAMS
from clisup.fleet.holds import CLOCK_S
from clisup.fleet.jobs import GONE_S
from clisup.fleet.nats_engine import StreamState
from clisup.fleet.setup.server import GOOD
from clisup.ops.doctor import Finding

__all__ = ["BoxSeen", "FleetFacts", "fleet_findings"]

MUCH_LAG = 10_000
"""Events behind which a copy counts as late."""


@dataclass(frozen=True, slots=True)
class BoxSeen:
    """Box as a short watch saw it: its last beat, the engine's time of it, and all incarnations that beat."""

    beat: BoxBeat
    at: float
    incarnations: frozenset[str]


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """Facts about a fleet. `now` is the engine's time; `nodes` the number of its nodes; `drives` tells whether this key may drive.

    `refused` is the engine's refusal of something that the member's roles allow, or "".
    """

    version: tuple[int, int, int]
    nodes: int
    now: float
    streams: Mapping[str, StreamState]
    boxes: Mapping[str, BoxSeen] = field(default_factory=dict)
    roles: Sequence[str] = ()
    refused: str = ""


def fleet_findings(facts: FleetFacts) -> list[Finding]:
    """Return the findings, those of the engine first."""
    return [_version(facts), *_streams(facts), _rights(facts), *_boxes(facts)]


def _version(facts: FleetFacts) -> Finding:
    text = ".".join(map(str, facts.version))
    if facts.version < GOOD:
        good = ".".join(map(str, GOOD))
        return Finding(
            "engine", "warn", f"nats-server {text}: {good} has mended losses", "upgrade the nodes, one by one"
        )
    return Finding("engine", "ok", f"nats-server {text}, {facts.nodes} node{'s' * (facts.nodes != 1)}")


def _streams(facts: FleetFacts) -> list[Finding]:
    missing = [stream.name for stream in STREAMS if stream.name not in facts.streams]
    if missing:
        return [Finding("streams", "fail", f"missing: {', '.join(missing)}", "clisup fleet prepare ADMIN.member")]
    found = []
    for name, state in facts.streams.items():
        fewer = state.replicas < min(3, facts.nodes)
        if state.behind:
            found.append(
                Finding("streams", "warn", f"{name} is behind on {', '.join(state.behind)}", "see the log of that node")
            )
        if fewer or (facts.nodes > 1 and not state.leader):
            why = f"{name} has {state.replicas} copies on {facts.nodes} nodes" if fewer else f"{name} has no leader"
            found.append(Finding("streams", "warn" if fewer else "fail", why, "clisup fleet prepare ADMIN.member"))
    copies = facts.streams[STREAMS[0].name]
    size = f"{copies.messages} chunks, {copies.bytes / 2**20:.1f} MiB of copies"
    return found or [Finding("streams", "ok", f"{len(facts.streams)} streams, {size}")]


def _rights(facts: FleetFacts) -> Finding:
    roles = ", ".join(facts.roles)
    if facts.refused:
        return Finding(
            "rights",
            "fail",
            f"the nodes refuse what {roles} may: {facts.refused[:200]}",
            "copy members.conf to all nodes",
        )
    if "worker" in facts.roles and {"operator", "admin"} & set(facts.roles):
        fix = "keep keys that drive off boxes where models run: clisup fleet member add"
        return Finding("rights", "warn", f"this key is {roles}: a tool of a model here could drive other boxes", fix)
    return Finding("rights", "ok", f"this key is {roles}")


def _boxes(facts: FleetFacts) -> list[Finding]:
    found = []
    for name, box in sorted(facts.boxes.items()):
        off, silence = box.beat.at - box.at, facts.now - box.at
        if len(box.incarnations) > 1:
            found.append(
                Finding(
                    name, "fail", "two boxes beat under this name", "leave the fleet on one of them, and add a member"
                )
            )
        elif silence > GONE_S:
            found.append(
                Finding(
                    name, "warn", f"away: its last beat was {silence:.0f} s ago", "see its agent: clisup fleet agent"
                )
            )
        elif box.beat.daemon != "up":
            found.append(Finding(name, "warn", "its agent runs, but no daemon", "on the box: clisup start"))
        elif abs(off) > CLOCK_S:
            found.append(
                Finding(
                    name,
                    "warn",
                    f"its clock is off by {off:.0f} s, so it shares no rate limits",
                    "start a time service there",
                )
            )
        elif box.beat.lag > MUCH_LAG:
            found.append(Finding(name, "warn", f"{box.beat.lag} events are not copied yet", "see the log of its agent"))
        else:
            found.append(Finding(name, "ok", f"clisup {box.beat.version}, {box.beat.lag} events not copied yet"))
    return found
