"""A nursery that nobody sees from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

from clisup.client.aio import open_client
from clisup.client.nurseries import open_plain_nursery
from clisup.errors import UsageError


async def test_the_callers_exception_comes_out_as_it_was() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_plain_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyError("mine")


@pytest.mark.parametrize("cancel", [True, False])
async def test_at_the_end_its_tasks_are_cancelled_or_waited_for(cancel: bool) -> None:
    done: list[str] = []

    async def work() -> None:
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        done.append("all of it")

    async with open_plain_nursery(cancel=cancel) as nursery:
        nursery.start_soon(work)
    assert done == ([] if cancel else ["all of it"])


@pytest.mark.parametrize("block", [open_plain_nursery, open_client])
def test_outside_of_trio_it_is_said_what_is_missing(block: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    async def main() -> None:
        async with block():
            pass

    with pytest.raises(UsageError, match=r"because it needs trio, and none runs; call it within trio.run"):
        asyncio.run(main())
