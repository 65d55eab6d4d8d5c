"""Nursery inside our context managers: the caller's exception leaves the block as it was, not in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from clisup.errors import UsageError

__all__ = ["check_trio", "open_plain_nursery"]


def check_trio() -> None:
    """Raise `UsageError` unless trio runs. Under asyncio, each place would fail in its own way."""
    if not trio.lowlevel.in_trio_run():
        raise UsageError(
            "cannot do this here, because it needs trio, and none runs",
            kind="usage",
            hint="call it within trio.run(...); for programs without trio there are clisup.llm.blocking and clisup.client.sync",
        )


@asynccontextmanager
async def open_plain_nursery(*, cancel: bool = True) -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled at the end of the block; without `cancel`, they are awaited."""
    check_trio()
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            if cancel:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
