"""Start of keepers, and the connection to them. The launch spec goes through the keeper's stdin: never argv or disk.

A keeper outlives the daemon, so this module ends no keeper by accident: closing a link only ends the conversation.
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
"""Limit of unacknowledged `grew` pushes of a keeper.

An acknowledgement of each push would wake the keeper for each line of its CLI.
"""
READY_LIMIT_S = 20.0  # for a loaded machine: an idle machine takes 15 ms
CONNECT_LIMIT_S = 10.0
_UNCHECKED_HASH = (1).to_bytes(4, "little")
_MESSAGE_LIMIT = 8 * 1024 * 1024
_KEEPER_FILE = str(Path(clisup.keeper.__file__).with_name("keeper.py"))


class KeeperPipes:
    """The daemon's ends of two pipes to a keeper that is being started: one for its spec, one for its first message.

    Only the pipes tell whether a keeper exists. A keeper may exist as long as some process has the other end of the
    second pipe.
    """

    theirs: tuple[int, int]
    """Stdin and stdout of the keeper, until `close_theirs`."""

    def __init__(self) -> None:
        """Create the pipes. Raises `OSError`."""
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
        """Close the keeper's ends: the keeper has its own by now, or will not start."""
        for fd in self.theirs:
            os.close(fd)

    async def hand_over(self, spec: bytes) -> dict[str, Any] | None:
        """Send the keeper its spec, and return its first line: `{"ready": ...}` or `{"error": ...}`.

        Return an empty dict if no line came within `READY_LIMIT_S`: the run's directory then shows what happened.
        Return None if no line can come any more, because no process holds the other end.
        """
        line, ended = b"", False
        with trio.move_on_after(READY_LIMIT_S):
            async with self._spec, self._word:
                try:
                    await self._spec.send_all(spec)
                except trio.BrokenResourceError:
                    pass  # the keeper exited early: its message on stdout gives the reason
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
    """Keeper that this process has started itself: its pipes, and its zombie to reap."""

    def __init__(self, popen: subprocess.Popen[bytes], pipes: KeeperPipes) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.pipes = pipes

    async def reap(self) -> None:
        """Wait for the keeper's end and reap it, so that no zombie stays."""
        await end_of(self.pid)
        self._popen.wait()


async def end_of(pid: int) -> None:
    """Wait for the end of a child that is not reaped yet."""
    fd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


def compile_keeper(directory: str) -> str:
    """Byte-compile the keeper into `directory` at the daemon's start, and return the path.

    Python compiles a script of the command line at each start. That takes 25 ms, longer than the rest of the keeper's
    start. A file that a previous daemon has compiled is reused. Any other file at the path is replaced, and a link is
    never followed. Raises `WorldError(storage_failed)`.
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
        os.chmod(path, 0o600)  # py_compile copies the mode of the source
    except OSError as error:
        raise storage_error("write", path, error) from None
    return path


def _is_compiled(path: str) -> bool:
    """Tell whether this interpreter compiled the file from this very source.

    The file's header says so (PEP 552): magic number, flags, hash of the source. Anybody can write such a header before
    code of their own. Therefore only this user or root may be able to write the file.
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
    """Start a keeper without the zygote, on the calling thread. Raises `OSError`.

    `clisup.host.process.zygote` has a faster way.
    """
    pipes = KeeperPipes()
    try:
        return KeeperProcess(spawn(keeper_file, "keeper", *pipes.theirs), pipes)
    finally:
        pipes.close_theirs()


def spawn(keeper_file: str, role: str, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    """Start the keeper's file as a process. Raises `OSError`.

    vfork takes 0.3 ms, and no preexec_fn (20 times slower, measured) is needed. With `-I -S` the process can import
    nothing beside the one file and reads no site-packages. Its environment is empty.
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
    """Control connection to one keeper: JSON lines both ways."""

    def __init__(self, stream: trio.SocketStream, hello: dict[str, Any]) -> None:
        self._stream = stream
        self._lock = trio.Lock()
        self.hello = hello
        self._buffer = b""
        self._early: list[dict[str, Any]] = []
        self._unseen = 0

    async def seen(self) -> None:
        """Record that a `grew` was handled.

        The keeper gets an acknowledgement when half of its window is used up, or for each `grew` if it announced no
        window.
        """
        self._unseen += 1
        if self._unseen > int(self.hello.get("window", 1)) // 2:
            self._unseen = 0
            await self.send({"op": "seen"})

    @classmethod
    async def connect(cls, run_dir: str) -> KeeperLink:
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
        """Send one message whole. Return False if the keeper is gone."""
        async with self._lock:
            try:
                await self._stream.send_all(json.dumps(message).encode() + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
        return True

    async def receive(self) -> list[dict[str, Any]]:
        """Return the keeper's next messages, or an empty list once the keeper has closed the connection."""
        if early := self._early:
            self._early = []
            return early
        while len(self._buffer) <= _MESSAGE_LIMIT:
            try:  # data is rarely ready: `receive_some` would try to read first
                await trio.lowlevel.wait_readable(self._stream.socket)
                chunk = os.read(self._stream.socket.fileno(), 65536)
            except BlockingIOError:
                continue
            except (OSError, ValueError, trio.ClosedResourceError):  # ValueError: closed here at that moment
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
