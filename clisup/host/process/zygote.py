"""Keeper zygote: a process of the daemon that has loaded the keeper's code and forks keepers.

A keeper started by itself starts an interpreter first. A forked keeper reaches its CLI in a quarter of the time, and
shares most of its memory with the others (docs/decisions/0041 has the figures). The zygote gets descriptors and returns
numbers: no launch spec ever passes through it, and its forks are not children of the daemon. It exits when the daemon's
end of its socket is closed, for whatever reason; its keepers go on. Its code is `be_zygote` in clisup/keeper/keeper.py.
"""

from __future__ import annotations

import socket
import subprocess
from collections import deque
from collections.abc import Callable

import trio

from clisup.host.process.keepers import KeeperPipes, end_of, spawn

__all__ = ["ForkedKeeper", "KeeperZygote"]

END_LIMIT_S = 1.0  # time to exit once its socket is closed; a kill follows, which its keepers do not notice
_ANSWER_BYTES = 32


class ForkedKeeper:
    """Keeper that was requested.

    `answered` is set when the zygote has forked it or reports a failure in `error`, an errno.
    """

    def __init__(self, pipes: KeeperPipes, give_up: Callable[[], None]) -> None:
        """Store the pipes and `give_up`, which kills a zygote that does not answer.

        The requests of a killed zygote are lost with it, and their pipes show that.
        """
        self.pipes = pipes
        self.give_up = give_up
        self.answered = trio.Event()
        self.pid: int | None = None
        self.error: int | None = None

    def take(self, number: int) -> None:
        """Store the zygote's answer."""
        if number > 0:
            self.pid = number
        else:
            self.error = -number
        self.answered.set()


class KeeperZygote:
    """Process that forks keepers.

    Wait for `up` before the first `fork`; `heed` takes its answers; always call `end`.
    """

    def __init__(self, keeper_file: str) -> None:
        """Start the zygote, on the calling thread. Raises `OSError`."""
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
        """Return the pid of the zygote."""
        return self._popen.pid

    async def up(self) -> bool:
        """Wait for the zygote's first message. Return False if the zygote exited instead."""
        return bool(await self._receive())

    def fork(self) -> ForkedKeeper | None:
        """Request a keeper, without waiting.

        Return None if the zygote cannot be asked: it is gone, or has too much to do.

        A request is carried out or not; the keeper's pipes tell which. Raises `OSError` if no pipe can be created.
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
        """Take the zygote's answers, which come in the order of the requests, until the zygote is gone."""
        while answer := await self._receive():
            self._asked.popleft().take(int(answer))

    async def _receive(self) -> bytes:
        try:
            return await self._answers.recv(_ANSWER_BYTES)
        except OSError:  # the zygote was killed with requests unread
            return b""

    async def end(self) -> None:
        """Let the zygote exit, and reap it."""
        self._answers.close()
        with trio.move_on_after(END_LIMIT_S):
            await end_of(self.pid)
        self._popen.kill()
        self._popen.wait()
