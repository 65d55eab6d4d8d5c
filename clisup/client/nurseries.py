"""A nursery for a context manager of ours: the caller's own exception comes out of it as it was, not in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from clisup.errors import UsageError

__all__ = ["check_trio", "open_plain_nursery"]


def check_trio() -> None:
    """Raises `UsageError` where no trio runs: asyncio's loop would say something else at each place."""
    if not trio.lowlevel.in_trio_run():
        raise UsageError(
            "cannot do this here, because it needs trio, and none runs",
            kind="usage",
            hint="call it within trio.run(...); for programs without trio there are clisup.llm.blocking and clisup.client.sync",
        )


@asynccontextmanager
async def open_plain_nursery(*, cancel: bool = True) -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends; without `cancel`, they are waited for. `UsageError` outside of trio."""
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
