"""Start of keepers and of the guards of helpers, by a zygote or one by one, and the connection to a keeper's control socket.

A keeper outlives the daemon, so this module ends no keeper by accident: closing a connection only ends the
conversation. The launch spec goes through the keeper's stdin: never argv, disk or the zygote.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import trio

import clisup.keeper
from clisup.errors import WorldError
from clisup.model.structs import JsonObject

KEEPER_FILE = str(Path(clisup.keeper.__file__).with_name("__main__.py"))
KEEPER_PROTO = 1
GREW_WINDOW = 64
"""Limit of unacknowledged `grew` pushes of a keeper.

An acknowledgement of each push would wake the keeper for each line of its CLI.
"""
READY_LIMIT_S = 20.0  # for a loaded machine: an idle machine takes 50 ms at most
CONNECT_LIMIT_S = 10.0
ZYGOTE_END_LIMIT_S = 1.0  # to exit once its socket is closed; a kill follows, which its keepers do not notice
MESSAGE_MAX = 8 * 1024 * 1024


class KeeperPipes:
    """The daemon's ends of two pipes to a starting keeper: a pipe for the spec, and a pipe for the first message.

    Only the pipes tell whether a keeper exists. A keeper may exist as long as some process has the other end of the
    second pipe.
    """

    theirs: tuple[int, int]
    """Stdin and stdout of the keeper, until `close_theirs`."""

    def __init__(self) -> None:
        """Create the pipes. Raises `OSError`."""
        stdin, ours = os.pipe2(os.O_CLOEXEC)
        try:
            answer, stdout = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(stdin)
            os.close(ours)
            raise
        self.theirs = (stdin, stdout)
        self._spec, self._answer = trio.lowlevel.FdStream(ours), trio.lowlevel.FdStream(answer)

    def close_theirs(self) -> None:
        """Close the keeper's ends: by now the keeper has its own ends, or will not start."""
        for fd in self.theirs:
            os.close(fd)

    async def hand_over(self, spec: bytes) -> JsonObject | None:
        """Send the keeper its spec, and return the first line: `{"ready": ...}` or `{"error": ...}`.

        Return an empty dict without a line within `READY_LIMIT_S`: the run's directory then shows the result.
        Return None if no line can come any more, because no process holds the other end.
        """
        line, ended = b"", False
        with trio.move_on_after(READY_LIMIT_S):
            async with self._spec, self._answer:
                try:
                    await self._spec.send_all(spec)
                except trio.BrokenResourceError:
                    pass  # the keeper exited early: its message on stdout gives the reason
                await self._spec.aclose()
                async for chunk in self._answer:
                    line += chunk
                ended = True
        if ended and not line:
            return None
        try:
            return dict(json.loads(line))
        except ValueError:
            return {}


class KeeperProcess:
    """Keeper that this process started itself: the pipes, and the zombie to reap."""

    def __init__(self, popen: subprocess.Popen[bytes], pipes: KeeperPipes) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.pipes = pipes

    async def reap(self) -> None:
        """Wait for the keeper's exit and reap it, so that no zombie stays."""
        await wait_for_exit(self.pid)
        self._popen.wait()


async def wait_for_exit(pid: int) -> None:
    """Wait until a child has exited. It stays a zombie, so that no other process gets its pid."""
    fd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


def start_keeper(keeper_file: str = KEEPER_FILE) -> KeeperProcess:
    """Start a keeper without the zygote, on the calling thread. Raises `OSError`."""
    pipes = KeeperPipes()
    try:
        return KeeperProcess(_spawn([keeper_file], *pipes.theirs), pipes)
    finally:
        pipes.close_theirs()


def _spawn(arguments: list[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    """Start the keeper's program. Raises `OSError`.

    With `-I -S` the process reads no site-packages and no variable. The environment is empty. Without a preexec_fn the
    start is a vfork.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        close_fds=True,
    )


def start_helper_guard(stdin: int, ends: ExitStack) -> Callable[[], None]:
    """Start the guard of a helper without the zygote, on the calling thread. `ends` reaps the guard, which has ended by then.

    Return a function that kills the guard. Raises `OSError`.
    """
    guard = _spawn([KEEPER_FILE, "helper"], stdin, subprocess.DEVNULL)
    ends.callback(guard.wait)
    return guard.kill


class ForkRequest:
    """Request to the zygote.

    `answered` is set when the zygote has forked, or reports a failure in `error`, an errno.
    """

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.pid: int | None = None
        self.error: int | None = None

    def set_answer(self, number: int) -> None:
        """Store the zygote's answer: a pid, or minus an errno."""
        if number > 0:
            self.pid = number
        else:
            self.error = -number
        self.answered.set()


class ForkedKeeper(ForkRequest):
    """Keeper requested from the zygote."""

    def __init__(self, pipes: KeeperPipes, kill_zygote: Callable[[], None]) -> None:
        super().__init__()
        self.pipes = pipes
        self.kill_zygote = kill_zygote


class KeeperZygote:
    """Child of the daemon with the keeper's code loaded, which forks keepers (clisup/keeper/zygote.py).

    A forked keeper reaches its CLI in a sixth of the time of a keeper with its own interpreter start, and shares most
    memory. Forked keepers are not children of the daemon. The zygote exits when the daemon's end of the socket is closed,
    for whatever reason; the keepers go on.

    Wait for `up` before the first `fork`; run `receive_answers` meanwhile; always call `end`.
    """

    def __init__(self, keeper_file: str = KEEPER_FILE) -> None:
        """Start the zygote, on the calling thread. Raises `OSError`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._popen = _spawn([keeper_file, "fork"], theirs.fileno(), subprocess.DEVNULL)
        except OSError:
            ours.close()
            raise
        ours.setblocking(False)
        self._socket = ours
        self._answers = trio.socket.from_stdlib_socket(ours)
        self._asked: deque[ForkRequest] = deque()

    @property
    def pid(self) -> int:
        """Return the pid of the zygote."""
        return self._popen.pid

    async def up(self) -> bool:
        """Wait for the zygote's first message. Return False if the zygote exited instead."""
        return bool(await self._receive())

    def fork(self) -> ForkedKeeper | None:
        """Ask for a keeper, without waiting. Return None without a zygote, or while the zygote's socket is full.

        The keeper's pipes tell whether the request was carried out. Raises `OSError` if no pipe can be created.
        """
        pipes = KeeperPipes()
        try:
            socket.send_fds(self._socket, [b"k"], pipes.theirs)
        except OSError:
            return None
        finally:
            pipes.close_theirs()
        keeper = ForkedKeeper(pipes, self._popen.kill)
        self._asked.append(keeper)
        return keeper

    def fork_helper(self, stdin: int) -> Callable[[], None]:
        """Ask for the guard of a helper, without waiting. Return a function that kills the zygote.

        The guard's link tells whether the request was carried out. Raises `OSError` without a zygote, or while its socket is
        full.
        """
        socket.send_fds(self._socket, [b"h"], [stdin])
        self._asked.append(ForkRequest())
        return self._popen.kill

    async def receive_answers(self) -> None:
        """Deliver the zygote's answers, in the order of the requests, until the zygote is gone."""
        while answer := await self._receive():
            self._asked.popleft().set_answer(int(answer))

    async def _receive(self) -> bytes:
        try:
            return await self._answers.recv(32)
        except OSError:  # the zygote was killed with requests unread
            return b""

    async def end(self) -> None:
        """Let the zygote exit, and reap the zygote."""
        self._answers.close()
        with trio.move_on_after(ZYGOTE_END_LIMIT_S):
            await wait_for_exit(self.pid)
        self._popen.kill()
        self._popen.wait()


class KeeperConnection:
    """Connection to one keeper's control socket: JSON lines both ways."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.hello: JsonObject = {}
        self._stream = stream
        self._sending = trio.Lock()
        self._received: deque[JsonObject] = deque()
        self._rest = b""  # of an incomplete line
        self._unacknowledged = 0

    @classmethod
    async def connect(cls, run_dir: str) -> KeeperConnection:
        """Connect and exchange hello.

        Raises `OSError` if no keeper listens, and `WorldError` if the keeper does not answer.
        """
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Connect through the descriptor, because the path of a state directory may be too long for a socket.
            await sock.connect(f"/proc/self/fd/{directory}/ctl.sock")
        except BaseException:
            sock.close()
            raise
        finally:
            os.close(directory)
        connection = cls(trio.SocketStream(sock))
        with trio.move_on_after(CONNECT_LIMIT_S):
            await connection.send({"op": "hello", "proto": KEEPER_PROTO, "window": GREW_WINDOW})
            while (message := await connection.receive()) is not None:
                if "hello" in message:
                    connection.hello = message["hello"]
                    return connection
        await connection.aclose()
        raise WorldError(
            "cannot talk to the keeper, because it did not answer", kind="spawn_failed", hint="see its run dir"
        )

    async def send(self, message: JsonObject) -> bool:
        """Send one message whole. Return False if the keeper is gone."""
        async with self._sending:
            try:
                await self._stream.send_all(json.dumps(message).encode() + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
        return True

    async def acknowledge_growth(self) -> None:
        """Acknowledge a `grew` push.

        The keeper gets a `seen` after half of the window, or for each push if the keeper announced no window.
        """
        self._unacknowledged += 1
        if self._unacknowledged > int(self.hello.get("window", 1)) // 2:
            self._unacknowledged = 0
            await self.send({"op": "seen"})

    async def receive(self) -> JsonObject | None:
        """Return the keeper's next message, or None after the connection's end."""
        while not self._received:
            if (chunk := await self._read()) is None:
                return None
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if not chunk or len(self._rest) > MESSAGE_MAX:
                return None
            for line in lines:
                self._received.append(msgspec.json.decode(line))
        return self._received.popleft()

    async def _read(self) -> bytes | None:
        """Return the next bytes, or None if the connection is gone. `receive_some` of trio makes 25 calls more, for each line."""
        try:
            await trio.lowlevel.wait_readable(self._stream.socket)  # first, so that other tasks have a turn
            return os.read(self._stream.socket.fileno(), 65536)
        except (OSError, trio.ClosedResourceError):
            return None

    async def aclose(self) -> None:
        """End the conversation; the keeper and its CLI go on."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)
