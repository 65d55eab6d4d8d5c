"""Executables of CLIs and their versions. Answers are cached by the identity of the file, so an update is noticed."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import trio

from clisup.errors import WorldError
from clisup.host import clock

PROBE_LIMIT_S = (
    30.0  # gemini 0.61.0 needs 1.7 s of CPU time to print its version: 10 s are too few on a machine at load 10
)
PROBE_OUTPUT_LIMIT = 4096
FAILED_PROBE_S = 30.0  # for so long, a caller with `patience_s` accepts the failure of an earlier probe
PIPE_GRACE_S = 0.25  # for the rest of the output, if a child of the command still holds its stdout


class Executable(NamedTuple):
    """Executable file, and the identity that distinguishes it from a file that may replace it."""

    path: str
    identity: tuple[str, int, int, int, int]

    @property
    def real(self) -> str:
        """Return the path with all links resolved."""
        return self.identity[0]


_real: dict[str, str] = {}
"""Real path of each path that was found. A path is not resolved again while stat shows the same file."""


def find_executable(name: str, *, search_path: str, backend: str) -> Executable:
    """Find `name` on `search_path`, or use it as a path.

    Raises `WorldError(backend_unavailable)` with name and reason.
    """
    found = shutil.which(name, path=search_path)
    if found is None:
        exists = os.path.exists(name) and os.sep in name
        reason = (
            "it is not executable" if exists else "there is no such command on the daemon's PATH" * (os.sep not in name)
        )
        raise WorldError(
            f"cannot run backend {backend!r}, because {name!r} cannot be started: {reason or 'there is no such file'}",
            kind="backend_unavailable",
            hint=f"install it, or set backends.{backend}.command to its absolute path",
            backend=backend,
            command=name,
        )
    path = os.path.abspath(found)
    stat = os.stat(path)
    return Executable(path, (_real_path(path, stat), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))


def _real_path(path: str, now: os.stat_result) -> str:
    real = _real.get(path)
    try:
        if real is not None and os.path.samestat(os.lstat(real), now):
            return real
    except OSError:
        pass  # the file has moved
    real = _real[path] = os.path.realpath(path)
    return real


def find_worker(candidates: Sequence[Sequence[str]], *, search_path: str) -> tuple[str, ...] | None:
    """Return the first argv prefix that exists completely.

    An element with a slash is a glob of files; another element is a command or a flag. The first element must be
    executable, and only the first element is looked up on `search_path`.
    """
    for candidate in candidates:
        parts = [_part(part, search_path, first=at == 0) for at, part in enumerate(candidate)]
        if parts and all(part is not None for part in parts):
            return tuple(part for part in parts if part is not None)
    return None


def _part(part: str, search_path: str, *, first: bool) -> str | None:
    if os.sep not in part:
        return shutil.which(part, path=search_path) if first else part
    found = sorted(path for path in glob.glob(part) if os.access(path, os.X_OK if first else os.R_OK))
    return found[0] if found else None


def missing_packages(names: Sequence[str]) -> list[str]:
    """Return the Python packages of `names` that are not installed beside clisup. Nothing is imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


class CommandOutput(NamedTuple):
    """CommandOutput of a short command: its output and its exit code.

    The code is negative for a signal, and None if the command did not exit.
    """

    output: str
    exit_code: int | None


class VersionProbe:
    """Probe that runs `command --version` once for each binary. Callers during a run wait for the same answer."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str | None] = {}
        self._asking: dict[tuple[object, ...], _PendingProbe] = {}
        self._failed: dict[tuple[object, ...], float] = {}

    def known(self, executable: Executable, argv: tuple[str, ...]) -> str | None:
        """Return the version from an earlier probe, or None if the command has to be run."""
        return self._known.get((executable.identity, argv))

    async def version(
        self,
        executable: Executable,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        parse: Callable[[str], str | None],
        *,
        patience_s: float | None = None,
    ) -> str | None:
        """Return the version, or None if the command printed none within `PROBE_LIMIT_S`.

        The next call repeats a failed probe.

        With `patience_s`, the call waits no longer than that, and the probe goes on for later callers. The call then
        also does not wait for a probe that failed in the last `FAILED_PROBE_S`.
        """
        key = (executable.identity, argv)
        if key in self._known:
            return self._known[key]
        failed = self._failed.get(key)
        if patience_s is not None and failed is not None and clock.monotonic() - failed < FAILED_PROBE_S:
            return None
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = _PendingProbe()
            # A system task: the probe outlives the request that began it, has its own limit, and ends with the daemon.
            trio.lowlevel.spawn_system_task(self._ask, key, argv, dict(env), parse, asking)
        with trio.move_on_after(inf if patience_s is None else patience_s):
            await asking.done.wait()
        if asking.error is not None:
            raise asking.error
        return asking.version

    async def _ask(
        self,
        key: tuple[object, ...],
        argv: tuple[str, ...],
        env: Mapping[str, str],
        parse: Callable[[str], str | None],
        asking: _PendingProbe,
    ) -> None:
        try:
            asking.version = parse(await _output(argv, env))
        except Exception as error:  # an adapter's code may raise anything: the callers get the error
            asking.error = error
        finally:
            del self._asking[key]
            asking.done.set()
        if asking.version is None:
            self._failed[key] = clock.monotonic()
        else:
            self._known[key] = asking.version
            self._failed.pop(key, None)


class _PendingProbe:
    """Probe in progress."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.version: str | None = None
        self.error: Exception | None = None


async def ask(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    limit_s: float = PROBE_LIMIT_S,
    limit_bytes: int = PROBE_OUTPUT_LIMIT,
) -> CommandOutput:
    """Run a short command in `/` and return its output, at most `limit_bytes` of stdout and stderr together."""
    return await _run(tuple(argv), env, stderr=subprocess.STDOUT, limit_s=limit_s, limit_bytes=limit_bytes)


async def _output(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    """Return the command's output on stdout."""
    return (await _run(argv, env, stderr=subprocess.DEVNULL, limit_s=PROBE_LIMIT_S)).output


async def _run(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    stderr: int,
    limit_s: float,
    limit_bytes: int = PROBE_OUTPUT_LIMIT,
) -> CommandOutput:
    """Run a command and return at most `limit_bytes` of output.

    A command that does not exit is killed with its children.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(env),
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return CommandOutput("", None)
    assert process.stdout is not None
    said = bytearray()
    left = False
    try:
        with trio.move_on_after(limit_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_collect, process, said, limit_bytes)
                await process.wait()
                left = True
                nursery.cancel_scope.deadline = trio.current_time() + PIPE_GRACE_S
    finally:
        with trio.CancelScope(shield=True):
            _kill_group(process)
            await process.wait()
            await process.stdout.aclose()
    return CommandOutput(said[:limit_bytes].decode("utf-8", "replace"), process.returncode if left else None)


async def _collect(process: trio.Process, said: bytearray, limit_bytes: int) -> None:
    """Read to the end of the output. A command that prints too much is not a `--version` and is killed."""
    assert process.stdout is not None
    async for chunk in process.stdout:
        said += chunk
        if len(said) > limit_bytes:
            _kill_group(process)
            return


def _kill_group(process: trio.Process) -> None:
    """Send SIGKILL to the command's process group, unless the command is reaped.

    Until then no other group has its number.
    """
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
