"""Start of helper programs: git, version probes, checks, commands of the user. Nothing else starts a program for the daemon.

A helper is contained like a CLI. A guard (clisup/keeper/helper.py) starts it, with an environment built from empty and
with the mark of a CLI's processes, so that the socket refuses the helper and all its descendants. The guard kills the
whole tree at the end of the program, of the request, and of this process, also after SIGKILL.

The keeper zygote forks the guard: git takes 4 ms longer than alone. Without a zygote a guard has its own interpreter: 40 ms.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import trio

from clisup.host import clock
from clisup.host.log import event_logger
from clisup.host.process.keepers import KeeperZygote, start_helper_guard

__all__ = [
    "DISCARD",
    "HELPERS",
    "HELPER_LIMIT_S",
    "HELPER_OUTPUT_LIMIT",
    "PIPE_GRACE_S",
    "HelperOutput",
    "ask",
    "run_helper",
]

DISCARD = subprocess.DEVNULL
"""Value of `stderr` for errors that nobody reads."""

HELPER_LIMIT_S = 30.0
"""Limit of a helper. gemini 0.61.0 needs 1.7 s of CPU time to print its version: 10 s are too few at load 10."""
HELPER_OUTPUT_LIMIT = 4096
PIPE_GRACE_S = 0.25  # for the rest of the output, if a child of an exited program still holds its stdout
GUARD_START_LIMIT_S = 20.0  # for a loaded machine: an idle machine takes 30 ms at most
GUARD_END_LIMIT_S = 10.0  # the guard kills the tree within 2 s
_MESSAGE_MAX = 65536
_CHUNK = 65536
_log = event_logger()


class HelperOutput(NamedTuple):
    """Output of a helper, and its exit code: negative for a signal, None if it was killed at a limit."""

    data: bytes
    exit_code: int | None

    @property
    def output(self) -> str:
        """Return the output as text."""
        return self.data.decode("utf-8", "replace")


class Helpers:
    """Facts of this process that all helpers share. A daemon sets both; a command of the user needs neither."""

    def __init__(self) -> None:
        self.zygote: KeeperZygote | None = None
        self.end_orphans: Callable[[], Awaitable[object]] | None = None
        """End the descendants of a guard that somebody killed. They are children of the daemon."""


HELPERS = Helpers()


async def ask(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    purpose: str,
    stderr: int = subprocess.STDOUT,
    limit_s: float = HELPER_LIMIT_S,
    limit_bytes: int = HELPER_OUTPUT_LIMIT,
    stdin: bytes | int = b"",
) -> HelperOutput:
    """Run a helper as `run_helper`. A program that cannot be started, or prints too much, is no error."""
    helper = _Helper(argv, env, purpose, limit_bytes, kill_at_limit=True)
    try:
        return await helper.run(stdin, subprocess.PIPE, stderr, limit_s)
    except OSError:
        return HelperOutput(b"", None)


async def run_helper(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    purpose: str,
    stdin: bytes | int = b"",
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.STDOUT,
    limit_s: float,
    limit_bytes: int = HELPER_OUTPUT_LIMIT,
) -> HelperOutput:
    """Run a program in `/` with exactly this environment. Return the head of its output, and drop the rest.

    `stdin` is the input or a descriptor; `stdout` may be a descriptor; stderr goes to the output, to a descriptor or to
    `DISCARD`. `purpose` is for the log. The exit code is None after `limit_s`. Every process that the program
    started ends before the return. Raises `OSError` if the program cannot be started.
    """
    return await _Helper(argv, env, purpose, limit_bytes).run(stdin, stdout, stderr, limit_s)


class _Helper:
    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        purpose: str,
        limit_bytes: int,
        *,
        kill_at_limit: bool = False,
    ) -> None:
        self._argv, self._env, self._purpose = list(argv), dict(env), purpose
        self._limit_bytes, self._kill_at_limit = limit_bytes, kill_at_limit
        self._said = bytearray()

    async def run(self, stdin: bytes | int, stdout: int, stderr: int, limit_s: float) -> HelperOutput:
        """Run the program to its end. Raises `OSError` if the program cannot be started."""
        began, code = clock.monotonic(), None
        with ExitStack() as ends:
            pipes = _Pipes(stdin, stdout, stderr, ends)
            guard = await _started(self._argv, self._env, pipes, ends)
            try:
                with trio.move_on_after(limit_s) as limit:
                    async with trio.open_nursery() as nursery:
                        if pipes.feed is not None and isinstance(stdin, bytes):
                            nursery.start_soon(_feed, pipes.feed, stdin)
                        if pipes.out is not None:
                            nursery.start_soon(self._collect, pipes.out, limit)
                        code = await guard.exit_code()
                        nursery.cancel_scope.deadline = trio.current_time() + PIPE_GRACE_S
            finally:
                with trio.CancelScope(shield=True):
                    await guard.end()
                self._report(guard, code, clock.monotonic() - began)
        if guard.error is not None:
            raise OSError(guard.error, os.strerror(guard.error))
        return HelperOutput(bytes(self._said[: self._limit_bytes]), code)

    async def _collect(self, stream: trio.lowlevel.FdStream, limit: trio.CancelScope) -> None:
        while chunk := await stream.receive_some(_CHUNK):
            self._said += chunk[: self._limit_bytes + 1 - len(self._said)]
            if len(self._said) > self._limit_bytes and self._kill_at_limit:
                limit.cancel()

    def _report(self, guard: _Guard, code: int | None, took_s: float) -> None:
        """Log the end: for developers, and for operators if the program was killed or left processes."""
        program, purpose, took_s = os.path.basename(self._argv[0]), self._purpose, round(took_s, 3)
        if code is None or guard.survivors or guard.left:
            _log.info("helper killed", program=program, purpose=purpose, guard=guard.pid, exit_code=code, took_s=took_s,
                      survivors=guard.survivors, left=guard.left)  # fmt: skip
        else:
            _log.debug("helper ended", program=program, purpose=purpose, guard=guard.pid, exit_code=code, took_s=took_s)


class _Pipes:
    """The program's descriptors `theirs`, and our ends of its pipes."""

    def __init__(self, stdin: bytes | int, stdout: int, stderr: int, ends: ExitStack) -> None:
        self.feed: trio.lowlevel.FdStream | None = None
        self.out: trio.lowlevel.FdStream | None = None
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._opened = [null]
        ends.callback(self.close_theirs)
        given = stdin if isinstance(stdin, int) else null
        if isinstance(stdin, bytes) and stdin:
            given, ours = os.pipe2(os.O_CLOEXEC)
            self._opened.append(given)
            self.feed = _stream(ours, ends)
        output = stdout
        if stdout == subprocess.PIPE:
            ours, output = os.pipe2(os.O_CLOEXEC)
            self._opened.append(output)
            self.out = _stream(ours, ends)
        errors = {subprocess.STDOUT: output, DISCARD: null}.get(stderr, stderr)
        self.theirs = (given, output, errors)

    def close_theirs(self) -> None:
        """Close our copies of the program's ends."""
        while self._opened:
            os.close(self._opened.pop())


def _stream(fd: int, ends: ExitStack) -> trio.lowlevel.FdStream:
    stream = trio.lowlevel.FdStream(fd)
    ends.callback(stream.close)
    return stream


async def _feed(stream: trio.lowlevel.FdStream, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # a program need not read
        await stream.send_all(data)
    stream.close()


async def _started(argv: list[str], env: dict[str, str], pipes: _Pipes, ends: ExitStack) -> _Guard:
    """Start a guard, by the zygote or alone. Raises `OSError` if no process can be started."""
    spec = json.dumps({"argv": argv, "env": env}).encode() + b"\n"
    zygote = HELPERS.zygote
    for use in (zygote, None) if zygote is not None else (None,):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            ours.setblocking(False)
            guard = _Guard(ours)
            ends.callback(guard.close)
            try:
                kill = (
                    use.fork_helper(theirs.fileno()) if use is not None else start_helper_guard(theirs.fileno(), ends)
                )
            except OSError:
                if use is not None:
                    continue  # a full or lost zygote
                raise
        if await guard.hand_over(spec, pipes.theirs, kill):
            pipes.close_theirs()
            return guard
    raise OSError(errno.EAGAIN, "no guard could be started")


class _Guard:
    """This end of the link to a guard."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(link))
        self._received = b""
        self._pidfd = -1
        self._over = False
        self.pid = 0
        self.error: int | None = None
        """The errno of a program that could not be started."""
        self.survivors: list[str] = []
        self.left: list[str] = []

    async def hand_over(self, spec: bytes, fds: tuple[int, int, int], kill: Callable[[], None]) -> bool:
        """Send the spec. Return False if the guard was lost before it started anything. `kill` ends a silent zygote."""
        answer = None
        with trio.move_on_after(GUARD_START_LIMIT_S) as limit:
            try:
                sent = socket.send_fds(self._link, [spec[:_MESSAGE_MAX]], fds)
                await self._stream.send_all(spec[sent:])
                answer = await self._receive()
            except (OSError, trio.BrokenResourceError):
                pass
        if limit.cancelled_caught:
            kill()
        if answer is None or "started" not in answer:
            return False
        self.pid = answer["started"]
        with suppress(OSError):
            self._pidfd = os.pidfd_open(self.pid)
        return True

    async def exit_code(self) -> int | None:
        """Wait for the program's exit. Return None if the guard was lost, or could not start the program."""
        answer = await self._receive() or {}
        self._note(answer)
        code = answer.get("exited", answer.get("over"))
        return code if isinstance(code, int) else None

    async def end(self) -> None:
        """Let the guard kill what is left of the tree, and wait for its last answer. Kill a guard without an answer."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        with trio.move_on_after(GUARD_END_LIMIT_S):
            while not self._over and (answer := await self._receive()) is not None:
                self._note(answer)
        if self._over:
            return
        _log.warning("helper guard lost", guard=self.pid)
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)  # the program dies with its guard (PR_SET_PDEATHSIG)
        if HELPERS.end_orphans is not None:
            await HELPERS.end_orphans()

    def _note(self, answer: dict[str, Any]) -> None:
        self.error = answer.get("error", self.error)
        self._over = self._over or "over" in answer or self.error is not None
        self.survivors = list(answer.get("survivors", self.survivors))
        self.left = list(answer.get("left", self.left))

    async def _receive(self) -> dict[str, Any] | None:
        """Return the guard's next message, or None at the end of the link."""
        while b"\n" not in self._received:
            try:
                data = await self._stream.receive_some(_CHUNK)
            except (OSError, trio.BrokenResourceError):
                return None
            if not data or len(self._received) > _MESSAGE_MAX:
                return None
            self._received += bytes(data)
        line, _, self._received = self._received.partition(b"\n")
        return dict(json.loads(line))

    def close(self) -> None:
        """Close the link and the guard's descriptor."""
        self._stream.socket.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
