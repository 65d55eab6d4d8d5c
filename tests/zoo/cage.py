"""A cage: the directory that a tree cannot hide from. Everything that lives in it is found by its working directory.

An environment can be cleared, a session, a group and a parent left; the working directory stays readable in /proc as long
as the process lives, and no animal leaves it. The fifo `life` in it tells the moment of the last death: every process of
the tree holds it open, and the kernel closes it as it dies.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Self

from clisup.host.process import cgroups

__all__ = ["PREFIX", "Cage", "Found", "inside"]

PREFIX = "clisup-zoo-"
CLEAR_S = 20.0


class Found(NamedTuple):
    """A living process, by what names it for ever, and its parent."""

    pid: int
    start: int
    parent: int


class Cage:
    """`tree` for the CLI and its animal, `run` for the keeper. `close` leaves nothing behind, whoever failed to kill it."""

    def __init__(self, cgroup: str | None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        self.tree, self.run, self.cgroup = self.root / "tree", self.root / "run", cgroup
        self.tree.mkdir()
        os.mkfifo(self.tree / "life")
        self.life = os.open(self.tree / "life", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def living(self) -> list[Found]:
        """Every process that lives in the cage. One look; a fork that is under way may be missed."""
        return inside(str(self.tree))

    def last_death(self, host: int, patience: float) -> tuple[float | None, float | None]:
        """Wait for the end of the host (a pidfd) and of all: when each came (monotonic), None where it did not."""
        times: dict[int, float] = {}
        poller = select.poll()
        for fd in (host, self.life):
            poller.register(fd, select.POLLIN)  # the fifo is never written to: only its last close wakes us
        end = time.monotonic() + patience
        while len(times) < 2 and (left := end - time.monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                times[fd] = time.monotonic()
                poller.unregister(fd)
        return times.get(host), times.get(self.life)

    def death_of(self, process: int, patience: float) -> float | None:
        """Wait for the end of one process (a pidfd): when it came, None where it did not."""
        return time.monotonic() if select.select([process], [], [], patience)[0] else None

    def empty(self) -> bool:
        """Nothing lives in it: nobody is seen, and nobody holds the fifo (a look at /proc misses who forks all the time)."""
        poller = select.poll()
        poller.register(self.life, select.POLLIN)
        return bool(poller.poll(0)) and not self.living()

    def clear(self) -> None:
        """Kill all that is left, and prove it. Stopped first: who cannot run cannot start a successor."""
        end = time.monotonic() + CLEAR_S
        (self.tree / "enough").touch()
        while not self.empty():
            for number in (signal.SIGSTOP, signal.SIGKILL):
                _signal_all(self.living(), number)
            assert time.monotonic() < end, f"cannot clear the cage: {self.living()}"

    def close(self) -> None:
        self.clear()
        os.close(self.life)
        end = time.monotonic() + CLEAR_S
        while self.cgroup and os.path.isdir(self.cgroup) and not cgroups.remove(self.cgroup):
            assert time.monotonic() < end, f"cannot remove {self.cgroup}"
            cgroups.kill(self.cgroup)
            time.sleep(0.005)
        shutil.rmtree(self.root)


def inside(directory: str) -> list[Found]:
    """The living processes whose working directory is this one, or lies below it."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            where = os.readlink(f"/proc/{name}/cwd")  # fails for a zombie: it is dead
        except OSError:
            continue
        if (where + "/").startswith(directory + "/") and (stat := _stat(int(name))):
            found.append(stat)
    return found


def _stat(pid: int) -> Found | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return Found(pid, int(fields[19]), int(fields[1])) if fields[0] not in "ZX" else None


def _signal_all(found: list[Found], number: int) -> None:
    for each in found:
        try:
            fd = os.pidfd_open(each.pid)
        except OSError:
            continue
        try:
            if (now := _stat(each.pid)) and now.start == each.start:
                signal.pidfd_send_signal(fd, number)
        except OSError:
            pass
        finally:
            os.close(fd)
