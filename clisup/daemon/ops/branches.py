"""Git branches of the sessions' directories, read on request in a thread, at most once in a few seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import trio

from clisup.host import clock
from clisup.host.git_head import branch_of
from clisup.host.threads import in_thread

BRANCH_LOOK_S = 3.0
"""Lifetime of a known branch."""

BRANCH_WAIT_S = 1.0
"""Longest wait of a request for a slow file system. After the wait, the answer has the branches known before."""

MAX_BRANCHES = 20_000
"""Most directories whose branches are remembered."""


class BranchLook:
    """Last known branch of each directory. Call `refresh` before `of`.

    One thread reads at a time. A file system that hangs keeps this thread, and then no branch is read anew.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, str | None]] = {}
        self._reader = trio.CapacityLimiter(1)

    async def refresh(self, directories: Collection[str]) -> None:
        """Read the branches that are unknown or too old. Never raises."""
        now = clock.monotonic()
        old = {path for path in directories if path not in self._found or now - self._found[path][0] > BRANCH_LOOK_S}
        if not old or not self._reader.available_tokens:
            return
        with trio.move_on_after(BRANCH_WAIT_S):
            found = await in_thread(_look, old, abandon_on_cancel=True, limiter=self._reader)
            if len(self._found) + len(found) > MAX_BRANCHES:
                self._found.clear()
            self._found.update({path: (now, branch) for path, branch in found.items()})

    def of(self, directory: str) -> str | None:
        """Return the branch of a directory, as far as known."""
        return self._found.get(directory, (0.0, None))[1]


def _look(directories: Collection[str]) -> Mapping[str, str | None]:
    return {path: branch_of(path) for path in directories}
