"""A nursery for a context manager of ours: the caller's own exception comes out of it as it was, not in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["open_plain_nursery"]


@asynccontextmanager
async def open_plain_nursery(*, cancel: bool = True) -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends; without `cancel`, they are waited for."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            if cancel:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
