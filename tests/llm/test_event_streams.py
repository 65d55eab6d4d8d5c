"""A stream has one reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio

from clisup.llm.answers import StreamEvent, TextDelta
from clisup.llm.streams import EventStream

BOUND_S = 20.0


async def test_a_second_reader_is_refused_and_the_first_one_goes_on() -> None:
    waits, go = trio.Event(), trio.Event()

    async def events() -> AsyncGenerator[StreamEvent, None]:
        waits.set()
        await go.wait()
        yield TextDelta("one")
        yield TextDelta("two")

    stream = EventStream(events())
    read: list[StreamEvent] = []

    async def reader() -> None:
        read.extend([event async for event in stream])

    with trio.fail_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            await waits.wait()
            with pytest.raises(RuntimeError, match="one stream at a time"):
                await anext(stream)
            go.set()
    assert read == [TextDelta("one"), TextDelta("two")]
