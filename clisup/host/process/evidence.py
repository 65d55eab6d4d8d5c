"""Looks at process trees: evidence of recent work, before the daemon ends a silent tool, and memory.

`tree_memory` is the column MEM of `clisup status`. `psutil.Process.children()` would read all of /proc for each tree: a
million reads for 500 sessions. `tree_memory` reads each process once. Its numbers equal psutil's `memory_info().rss`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from clisup.host import clock
from clisup.host.sockets import parent_of

if TYPE_CHECKING:
    import psutil  # its 13 ms are for the first look, not for the start

_PAGE = os.sysconf("SC_PAGE_SIZE")

_MOST_NAMES, _NAME_CHARS, _NAME_BYTES = 8, 60, 4096

CPU_NOISE_S = 0.02  # two ticks: a sleeping shell that polls shows no work


class Work(NamedTuple):
    """Work of one process since its start."""

    cpu_s: float
    io_bytes: int


_NONE = Work(0.0, 0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of one look at a tree: the live processes, by pid and start.

    CPU and I/O are sums over these processes.
    """

    rss_bytes: int
    at: float
    members: Mapping[tuple[int, float], Work] = field(repr=False)

    @property
    def processes(self) -> int:
        """Return the number of live processes."""
        return len(self.members)

    @property
    def cpu_s(self) -> float:
        """Return the CPU time of all live processes, in seconds."""
        return sum(work.cpu_s for work in self.members.values())

    @property
    def io_bytes(self) -> int:
        """Return the bytes read and written by all live processes."""
        return sum(work.io_bytes for work in self.members.values())

    def grew_since(self, earlier: Evidence) -> bool:
        """Tell whether the tree has worked since `earlier`: CPU beyond noise, any I/O, or a new process.

        Processes are compared individually. A process that has left takes all its work out of the sums, and would hide the
        work of the others.
        """
        pairs = [(work, earlier.members.get(name)) for name, work in self.members.items()]
        if any(before is None or work.io_bytes > before.io_bytes for work, before in pairs):
            return True
        return sum(work.cpu_s - before.cpu_s for work, before in pairs if before is not None) > CPU_NOISE_S

    def words(self) -> dict[str, float]:
        """Return the sums as fields of an event and of status."""
        return {"processes": self.processes, "cpu_s": round(self.cpu_s, 2), "io_bytes": self.io_bytes}


def look(keeper_pid: int | None, *, cli_pid: int | None = None) -> Evidence:
    """Look at everything below a keeper, which is the subreaper of its tree.

    The look blocks for some milliseconds: call the function in a thread. The CPU and I/O of `cli_pid` are left out.
    Claude's own event loop reads and writes a little all the time, even while a tool hangs (2.1.329).
    """
    import psutil

    rss = 0
    members: dict[tuple[int, float], Work] = {}
    for pid in below(keeper_pid) if keeper_pid is not None else ():
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times, started = process.cpu_times(), process.create_time()
                rss += process.memory_info().rss
                work = Work(times.user + times.system, _io_bytes(process)) if pid != cli_pid else _NONE
            members[pid, started] = work
        except psutil.Error:
            continue  # the process left during the look
    return Evidence(rss, clock.monotonic(), members)


def names_below(keeper_pid: int | None, *, cli_pid: int | None = None) -> list[str]:
    """Return the programs below a keeper, without the CLI itself: `npx`, `node server.js`. Arguments may be secrets, and are left out.

    The function blocks: call it in a thread.
    """
    names: dict[str, None] = {}
    for pid in below(keeper_pid) if keeper_pid is not None else ():
        if pid == cli_pid or len(names) == _MOST_NAMES:
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(_NAME_BYTES).decode("utf-8", "replace").split("\0")
        except OSError:
            continue  # the process left during the look
        program = os.path.basename(words[0])[:_NAME_CHARS]
        script = next((os.path.basename(word) for word in words[1:2] if word.startswith("/") and "=" not in word), "")
        if program:
            names[f"{program} {script[:_NAME_CHARS]}".strip()] = None
    return list(names)


def _io_bytes(process: psutil.Process) -> int:
    """Return the characters read and written, so that pipes and sockets count too. Return 0 without access to /proc."""
    import psutil

    try:
        counters = process.io_counters()
    except psutil.Error:
        return 0
    return int(counters.read_chars + counters.write_chars)


def tree_memory(roots: Iterable[int]) -> dict[int, int]:
    """Return the resident bytes below each root, without the root itself; 0 for a root without a child.

    The function blocks: call it in a thread. The roots are keepers. Each keeper is the subreaper of its tree, so every
    process of the CLI is below the keeper. Pages that several processes share count for each process, as in `ps` and
    `top`.
    """
    below = _children()
    return {root: sum(_resident(pid) for pid in _descendants(root, below)) for root in roots}


def below(root: int) -> list[int]:
    """Return the pids below `root`, without `root`.

    With hidepid= (proc(5)) no keeper is visible: `root` need not be.
    """
    return _descendants(root, _children())


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            parent = parent_of(int(name))
        except (OSError, ValueError, IndexError):
            continue  # the process left during the look
        found.setdefault(parent, []).append(int(name))
    return found


def _descendants(root: int, below: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    left = list(below.get(root, ()))
    while left:
        pid = left.pop()
        found.append(pid)
        left += below.get(pid, ())
    return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split(None, 2)[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
