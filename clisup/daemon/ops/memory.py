"""How much memory each run's tree takes: looked at when somebody asks, in a thread, and at most once in a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from clisup.host import clock
from clisup.host.process.evidence import tree_memory

__all__ = ["MEMORY_LOOK_S", "MemoryLook"]

MEMORY_LOOK_S = 3.0
"""What a look found is good for so long, whoever asks and however often. Where nothing runs, none is taken at all."""

NEW_RUN_LOOK_S = 0.5
"""A run that the last look has not seen is looked for after so long already."""


class MemoryLook:
    """What the last look found. `refresh` before `of`; several that ask at once share one look."""

    def __init__(self) -> None:
        self._found: dict[int, int] = {}
        self._at: float | None = None
        self._looking = trio.Lock()

    async def refresh(self, keepers: Callable[[], Mapping[str, int]]) -> None:
        """Look again, unless that was done just now. `keepers` gives the pid of each session's keeper, where it has one."""
        async with self._looking:
            roots = frozenset(keepers().values())
            good_for = MEMORY_LOOK_S if roots <= self._found.keys() else NEW_RUN_LOOK_S
            if self._at is not None and clock.monotonic() - self._at < good_for:
                return
            self._found = await trio.to_thread.run_sync(tree_memory, roots) if roots else {}
            self._at = clock.monotonic()

    def of(self, keeper: int | None) -> int | None:
        """Bytes below this keeper at the last look; None where there is none, or where it is younger than that look."""
        return None if keeper is None else self._found.get(keeper) or None
