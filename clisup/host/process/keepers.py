"""Starting keepers and talking to them. The launch spec goes through the keeper's stdin: never argv, never disk.

A keeper outlives the daemon, so nothing here ends one by accident: closing a link only ends the conversation.
"""

from __future__ import annotations

import json
import os
import py_compile
import stat
import subprocess
import sys
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any

import msgspec
import trio

import clisup.keeper
from clisup import __version__
from clisup.errors import WorldError
from clisup.host.files import storage_error

__all__ = [
    "KEEPER_PROTO",
    "KeeperLink",
    "KeeperPipes",
    "KeeperProcess",
    "compile_keeper",
    "end_of",
    "spawn",
    "start_keeper",
]

KEEPER_PROTO = 1
GREW_WINDOW = 64
"""Pushes of `grew` that a keeper may have outstanding: to confirm each would wake it for each line of its CLI."""
READY_LIMIT_S = 20.0  # a loaded machine: 15 ms is what an idle one takes
CONNECT_LIMIT_S = 10.0
_UNCHECKED_HASH = (1).to_bytes(4, "little")
_MESSAGE_LIMIT = 8 * 1024 * 1024
_KEEPER_FILE = str(Path(clisup.keeper.__file__).with_name("keeper.py"))


class KeeperPipes:
    """The daemon's ends of the two pipes to a keeper that is being started: in goes its spec, out comes its first word.

    Whether there is a keeper is told by them alone: as long as somebody has the other end of the second one, there may be.
    """

    theirs: tuple[int, int]
    """The keeper's stdin and stdout, until `close_theirs`."""

    def __init__(self) -> None:
        """Raises `OSError`."""
        spec, ours = os.pipe2(os.O_CLOEXEC)
        try:
            word, said = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(spec)
            os.close(ours)
            raise
        self.theirs = (spec, said)
        self._spec, self._word = trio.lowlevel.FdStream(ours), trio.lowlevel.FdStream(word)

    def close_theirs(self) -> None:
        """The keeper has its own by now, or there will be none."""
        for fd in self.theirs:
            os.close(fd)

    async def hand_over(self, spec: bytes) -> dict[str, Any] | None:
        """Give the keeper its spec, wait for its first line: `{"ready": ...}` or `{"error": ...}`.

        Empty where none came within `READY_LIMIT_S`: the run's directory then tells what became of it. None where it never will:
        nobody is there any more who could say it.
        """
        line, ended = b"", False
        with trio.move_on_after(READY_LIMIT_S):
            async with self._spec, self._word:
                try:
                    await self._spec.send_all(spec)
                except trio.BrokenResourceError:
                    pass  # it left early: its word on stdout says why
                await self._spec.aclose()
                async for chunk in self._word:
                    line += chunk
                ended = True
        if ended and not line:
            return None
        try:
            return dict(json.loads(line))
        except ValueError:
            return {}


class KeeperProcess:
    """A keeper that this process has started itself: its pipes, and its zombie."""

    def __init__(self, popen: subprocess.Popen[bytes], pipes: KeeperPipes) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.pipes = pipes

    async def reap(self) -> None:
        """Wait for its end, so that no zombie stays."""
        await end_of(self.pid)
        self._popen.wait()


async def end_of(pid: int) -> None:
    """Wait for the end of a child that nobody has reaped yet."""
    fd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


def compile_keeper(directory: str) -> str:
    """Byte-compile the keeper into `directory` and give the path; at the daemon's start.

    A script named on the command line is compiled at each start, which takes longer (25 ms) than all the rest of it.
    Where a daemon before this one has left it there, nothing is done. What else lies there is replaced, and never followed.
    Raises `WorldError(storage_failed)`.
    """
    path = os.path.join(directory, f"keeper-{__version__}.pyc")
    try:
        if _is_compiled(path):
            return path
        if os.path.lexists(path):
            os.unlink(path)  # py_compile refuses a link
        py_compile.compile(
            _KEEPER_FILE,
            cfile=path,
            doraise=True,
            optimize=2,  # without docstrings and assertions: 2.9 instead of 7.2 MB private
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        os.chmod(path, 0o600)  # it has got the mode of the source
    except OSError as error:
        raise storage_error("write", path, error) from None
    return path


def _is_compiled(path: str) -> bool:
    """Is it what this interpreter made of this very source? It says so itself (PEP 552): magic number, flags, the source's hash.

    Anybody can write these bytes before code of their own, so the file has to be one that only this user or root can have written.
    """
    with open(_KEEPER_FILE, "rb") as file:
        wanted = MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(file.read())
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            info = os.fstat(file.fileno())
            own = stat.S_ISREG(info.st_mode) and info.st_uid in (os.geteuid(), 0) and not info.st_mode & 0o022
            return own and file.read(len(wanted)) == wanted and len(file.read(1)) == 1
    except OSError:
        return False


def start_keeper(keeper_file: str) -> KeeperProcess:
    """Start a keeper by itself, on the calling thread; `clisup.host.process.zygote` has a faster way. Raises `OSError`."""
    pipes = KeeperPipes()
    try:
        return KeeperProcess(spawn(keeper_file, "keeper", *pipes.theirs), pipes)
    finally:
        pipes.close_theirs()


def spawn(keeper_file: str, role: str, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    """The keeper's file as a process: vfork takes 0.3 ms, and no preexec_fn (20 times slower, measured) is needed.

    `-I -S`: nothing beside the one file is importable and no site-packages are read. Its environment is empty.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", keeper_file, role],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        close_fds=True,
    )


class KeeperLink:
    """The control connection to one keeper: JSON lines both ways."""

    def __init__(self, stream: trio.SocketStream, hello: dict[str, Any]) -> None:
        self._stream = stream
        self._lock = trio.Lock()
        self.hello = hello
        self._buffer = b""
        self._early: list[dict[str, Any]] = []
        self._unseen = 0

    async def seen(self) -> None:
        """A `grew` was heeded. The keeper hears of it when half of its window is used up, of each where it has told no window."""
        self._unseen += 1
        if self._unseen > int(self.hello.get("window", 1)) // 2:
            self._unseen = 0
            await self.send({"op": "seen"})

    @classmethod
    async def connect(cls, run_dir: str) -> KeeperLink:
        """Connect and exchange hello. Raises `OSError` where no keeper listens, `WorldError` where it does not answer."""
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the descriptor, because a state directory may lie deeper than a socket path may be long.
            await sock.connect(f"/proc/self/fd/{directory}/ctl.sock")
        except BaseException:
            sock.close()
            raise
        finally:
            os.close(directory)
        link = cls(trio.SocketStream(sock), {})
        with trio.move_on_after(CONNECT_LIMIT_S):
            await link.send({"op": "hello", "proto": KEEPER_PROTO, "window": GREW_WINDOW})
            while messages := await link.receive():
                for at, message in enumerate(messages):
                    if "hello" in message:
                        link.hello, link._early = message["hello"], messages[at + 1 :]
                        return link
        await link.aclose()
        raise WorldError(
            "cannot talk to the keeper, because it did not answer", kind="spawn_failed", hint="see its run dir"
        )

    async def send(self, message: dict[str, Any]) -> bool:
        """Send one message whole; False where the keeper is gone."""
        async with self._lock:
            try:
                await self._stream.send_all(json.dumps(message).encode() + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
        return True

    async def receive(self) -> list[dict[str, Any]]:
        """The keeper's next messages; none once it has closed the connection."""
        if early := self._early:
            self._early = []
            return early
        while len(self._buffer) <= _MESSAGE_LIMIT:
            try:  # there is hardly ever something yet: `receive_some` would try that first
                await trio.lowlevel.wait_readable(self._stream.socket)
                chunk = os.read(self._stream.socket.fileno(), 65536)
            except BlockingIOError:
                continue
            except (OSError, ValueError, trio.ClosedResourceError):  # ValueError: closed here, in this very moment
                break
            if not chunk:
                break
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            if lines:
                return [msgspec.json.decode(line) for line in lines]
        return []

    async def aclose(self) -> None:
        """End the conversation; the keeper and its CLI go on."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)
