"""`clisup fleet doctor`: the engine, this key's rights, and all boxes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from clisup.cli.fleet.extra import check_extra
from clisup.cli.job.command import member_of_this_command
from clisup.cli.options import json_option
from clisup.cli.views.findings import print_findings
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, WorldError

if TYPE_CHECKING:
    from clisup.fleet.checks import BoxSeen, FleetFacts
    from clisup.fleet.member import FleetMember
    from clisup.fleet.nats_engine import NatsEngine

__all__ = ["doctor"]

WATCH_S = 6.0
"""Seconds of watching beats, which come every five."""
CALL_S = 5.0


@click.command("doctor")
@json_option("Print the findings as JSON.")
def doctor(as_json: bool) -> int:
    """Check the engine, the rights of this box's key, and all boxes. This takes six seconds: beats come every five.

    Exit code 1 means that a check failed.

    \b
    Example:
      clisup fleet doctor
      clisup fleet doctor --json | jq -r '.[] | select(.status != "ok") | .fix'
    """
    check_extra()
    from clisup.fleet.checks import fleet_findings

    member = member_of_this_command()
    if not as_json and sys.stderr.isatty():
        print(f"watching the beats for {WATCH_S:g} s ...", file=sys.stderr)
    found = fleet_findings(asyncio.run(_gather(member)))
    rows = [
        {"check": each.check, "status": each.status, "detail": each.detail, "fix": each.fix, "backend": None}
        for each in found
    ]
    if as_json:
        print(json.dumps(rows))
    else:
        print_findings(rows, f"Fleet {member.fleet}, this box is {member.name}")
    return EXIT_TURN_FAILED if any(each.status == "fail" for each in found) else EXIT_OK


async def _gather(member: FleetMember) -> FleetFacts:
    from clisup.fleet.checks import FleetFacts
    from clisup.fleet.nats_engine import connect_member

    async with connect_member(member) as engine:
        streams = await engine.stream_states()
        boxes = await _watch(engine) if "KV_BOXES" in streams else {}
        refused = await _refusal(engine, member)
        newest = max((box.at for box in boxes.values()), default=0.0)
        now = newest if any(len(box.incarnations) for box in boxes.values()) else time.time()
        return FleetFacts(
            engine.server_version, len(member.servers), max(now, newest), streams, boxes, sorted(member.roles), refused
        )


async def _watch(engine: NatsEngine) -> dict[str, BoxSeen]:
    """Return the boxes whose beats are stored or come within `WATCH_S`."""
    from clisup.fleet.agent.records import read_beat
    from clisup.fleet.checks import BoxSeen
    from clisup.fleet.engine import Bucket

    found: dict[str, BoxSeen] = {}
    try:
        async with asyncio.timeout(WATCH_S), aclosing(Bucket(engine, "BOXES").watch()) as entries:
            async for entry in entries:
                beat = read_beat(entry.value)
                before = found[entry.key].incarnations if entry.key in found else frozenset()
                found[entry.key] = BoxSeen(beat, entry.at, before | {beat.incarnation})
    except TimeoutError:
        pass
    return found


async def _refusal(engine: NatsEngine, member: FleetMember) -> str:
    """Return the engine's refusal of a call that the member's roles allow. The call is for a box that is not there."""
    from clisup.fleet.tunnel import call_subject, may_send

    for access in ("observe", "drive"):
        if may_send(access, member.roles):
            try:
                await engine.call(call_subject("nobody-here", access, member.name), b"", CALL_S)
            except WorldError as error:
                if error.kind == "permission_denied":
                    return error.message
    return ""
