"""Memory of each run's process tree, measured on request in a thread, at most once in a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from clisup.host import clock
from clisup.host.process.evidence import tree_memory
from clisup.host.threads import in_thread

MEMORY_LOOK_S = 3.0
"""Lifetime of a measurement. Without runs there is no measurement."""

NEW_RUN_LOOK_S = 0.5
"""Lifetime of a measurement that does not know one of the runs."""


class MemoryLook:
    """Last measurement. Call `refresh` before `of`; concurrent callers share one measurement."""

    def __init__(self) -> None:
        self._found: dict[int, int] = {}
        self._at: float | None = None
        self._looking = trio.Lock()

    async def refresh(self, keepers: Callable[[], Mapping[str, int]]) -> None:
        """Measure again, unless the last measurement is recent. `keepers` returns the pid of each session's keeper."""
        async with self._looking:
            roots = frozenset(keepers().values())
            good_for = MEMORY_LOOK_S if roots <= self._found.keys() else NEW_RUN_LOOK_S
            if self._at is not None and clock.monotonic() - self._at < good_for:
                return
            self._found = await in_thread(tree_memory, roots) if roots else {}
            self._at = clock.monotonic()

    def of(self, keeper: int | None) -> int | None:
        """Return the bytes below this keeper, or None if the last measurement does not know it."""
        return None if keeper is None else self._found.get(keeper) or None
