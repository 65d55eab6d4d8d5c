"""The keeper zygote: one process of the daemon's that has loaded the keeper's code, and forks keepers.

A keeper that is started by itself starts an interpreter first; a forked one is at its CLI in a quarter of the time, and
shares most of its memory with the others (docs/decisions/0041 has the figures). The zygote gets descriptors and gives
numbers: no launch spec ever passes through it, and what it forks is no child of the daemon's. It leaves when the daemon's
end of its socket is closed, however that came about; its keepers go on. It is `be_zygote` in clisup/keeper/keeper.py.
"""

from __future__ import annotations

import socket
import subprocess
from collections import deque
from collections.abc import Callable

import trio

from clisup.host.process.keepers import KeeperPipes, end_of, spawn

__all__ = ["ForkedKeeper", "KeeperZygote"]

END_LIMIT_S = 1.0  # to leave once its socket is closed; then it is killed, which its keepers do not notice
_ANSWER_BYTES = 32


class ForkedKeeper:
    """A keeper that was asked for. `answered` is set when the zygote has forked it, or says that it cannot: `error`, an errno."""

    def __init__(self, pipes: KeeperPipes, give_up: Callable[[], None]) -> None:
        """`give_up` ends a zygote that does not answer: its questions are lost with it, and their pipes say so."""
        self.pipes = pipes
        self.give_up = give_up
        self.answered = trio.Event()
        self.pid: int | None = None
        self.error: int | None = None

    def take(self, number: int) -> None:
        """The zygote's answer."""
        if number > 0:
            self.pid = number
        else:
            self.error = -number
        self.answered.set()


class KeeperZygote:
    """One zygote. `up` before the first `fork`; `heed` takes its answers; `end` is called whatever happened."""

    def __init__(self, keeper_file: str) -> None:
        """Start it, on the calling thread. Raises `OSError`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._popen = spawn(keeper_file, "zygote", theirs.fileno(), subprocess.DEVNULL)
        except OSError:
            ours.close()
            raise
        ours.setblocking(False)
        self._link = ours
        self._answers = trio.socket.from_stdlib_socket(ours)
        self._asked: deque[ForkedKeeper] = deque()

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def up(self) -> bool:
        """Wait for its first word; False where it left instead."""
        return bool(await self._receive())

    def fork(self) -> ForkedKeeper | None:
        """Ask for a keeper, without waiting. None where it cannot be asked: it is gone, or has too much to do.

        What was asked is done or not done; which of the two, the keeper's pipes tell. Raises `OSError` where there is no pipe.
        """
        pipes = KeeperPipes()
        try:
            socket.send_fds(self._link, [b"k"], pipes.theirs)
        except OSError:
            return None
        finally:
            pipes.close_theirs()
        keeper = ForkedKeeper(pipes, self._popen.kill)
        self._asked.append(keeper)
        return keeper

    async def heed(self) -> None:
        """Take its answers, which come in the order of the questions, until it is gone."""
        while answer := await self._receive():
            self._asked.popleft().take(int(answer))

    async def _receive(self) -> bytes:
        try:
            return await self._answers.recv(_ANSWER_BYTES)
        except OSError:  # it was killed with questions unread
            return b""

    async def end(self) -> None:
        """Let it leave, and reap it."""
        self._answers.close()
        with trio.move_on_after(END_LIMIT_S):
            await end_of(self.pid)
        self._popen.kill()
        self._popen.wait()
