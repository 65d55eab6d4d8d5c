"""Unparsed lines beyond a limit share events, and each is in exactly one, wherever a daemon dies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio
from lone_run import LoneRun

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.claude.adapter import ClaudeAdapter
from tests.journals import records

START = b'{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}},"parent_tool_use_id":null}\n'
SAID = b'{"type":"system","subtype":"status","status":"s"}\n'
UNKNOWN = b'{"type":"from_the_future"}\n'


def run_of(journal: Sequence[bytes] = (), **limits: int) -> LoneRun:
    request = LaunchRequest(("claude",), "go", None, False, "/")
    return LoneRun(ClaudeAdapter(), request, Carried(0.0), journal, by_chunk=True, **limits)


def said_by(*chunks: bytes, journal: Sequence[bytes] = (), **limits: int) -> list[bytes]:
    """The journal of a run whose CLI said this, a chunk with each read."""
    lone = run_of(journal, **limits)

    async def main() -> None:
        for chunk in chunks:
            await lone.take(chunk)

    trio.run(main)
    return lone.journal


def events(journal: Sequence[bytes]) -> list[dict[str, Any]]:
    return [record.event for record in records(b"".join(journal)) if record.event is not None]


def unparsed(journal: Sequence[bytes]) -> list[dict[str, Any]]:
    return [event for event in events(journal) if event["type"] == "unparsed"]


def places(journal: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where in the spool each unparsed event begins and ends."""
    found = [event["blob"].split("-") for event in unparsed(journal)]
    return [(int(start), int(end)) for _, _, _, start, end in found]


def test_beyond_the_limit_lines_in_a_row_share_an_event_that_counts_them() -> None:
    journal = said_by(START, b"x\nyy\n" + b"z\n" * 50 + UNKNOWN, unparsed_events=2)
    first, second, rest = unparsed(journal)
    assert (first["bytes"], second["bytes"]) == (1, 2) and "lines" not in first | second
    assert (rest["lines"], rest["bytes"], rest["excerpt"], rest["reason"]) == (
        51,
        50 + len(UNKNOWN) - 1,
        "z",
        "malformed",
    )
    begin, end = places(journal)[-1]
    assert (begin, end) == (len(START) + 5, len(START) + 5 + 100 + len(UNKNOWN))


def test_what_is_said_between_them_keeps_its_place() -> None:
    journal = said_by(START, b"x\nx\n" + SAID + b"x\nx\n", unparsed_events=0)
    types = [event["type"] for event in events(journal)]
    assert types[-3:] == ["unparsed", "status", "unparsed"]
    assert [event["lines"] for event in unparsed(journal)] == [2, 2]


def test_without_a_flood_each_line_has_its_event() -> None:
    journal = said_by(START, b"x\n" * 1000)
    assert len(unparsed(journal)) == 1000 and all("lines" not in event for event in unparsed(journal))


@pytest.mark.fault(1)
@pytest.mark.fault(78)
@pytest.mark.parametrize("limit", [0, 3, 100])
def test_each_line_is_in_one_event_wherever_the_daemon_died(limit: int) -> None:
    chunks = [START, b"x\n" * 5 + b"yy\n", SAID + b"x\n" * 3, b"\n\nz\n", UNKNOWN * 2 + SAID, b"x\nx\n"]
    spool = b"".join(chunks)
    whole = said_by(*chunks, unparsed_events=limit)
    garbage = sum(line.strip() not in (b"", START.strip(), SAID.strip()) for line in spool.split(b"\n"))
    for kept in range(3, len(whole) + 1):
        for reads in (chunks, [spool], [spool[at : at + 7] for at in range(0, len(spool), 7)]):
            journal = said_by(*reads, journal=whole[:kept], unparsed_events=limit)
            assert journal[:kept] == whole[:kept]
            assert sum(event.get("lines", 1) for event in unparsed(journal)) == garbage
            found = places(journal)
            assert found == sorted(found) and all(a[1] <= b[0] for a, b in pairwise(found))
