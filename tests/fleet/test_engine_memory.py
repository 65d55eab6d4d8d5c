"""The engine in memory keeps the contract that the real one keeps."""

from __future__ import annotations

import asyncio

import pytest

from clisup.errors import UsageError
from clisup.fleet.engine import stream_of
from tests.fleet.engine_contract import CONTRACT, PATIENCE_S, Check
from tests.fleet.memory_engine import MemoryEngine


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_the_engine_in_memory(check: Check) -> None:
    async def run() -> None:
        await check(MemoryEngine(), check.__name__)

    asyncio.run(run())


def test_a_reader_ends_when_the_engine_loses_what_it_read() -> None:
    async def run() -> None:
        engine = MemoryEngine()
        for number in range(3):
            await engine.append("clisup.ev.box.s.0", b"%d" % number)
        async with asyncio.timeout(PATIENCE_S):
            async for message in engine.read("clisup.ev.>"):
                if message.position == 3:
                    await engine.lose("clisup.ev.box.s.0", 1)

    asyncio.run(run())


def test_a_subject_outside_the_fleet_is_refused() -> None:
    with pytest.raises(UsageError, match="no stream of the fleet"):
        stream_of("other.subject")
