"""Finding a CLI and its version. Answers are cached by the file's identity, so that an updated binary is noticed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import NamedTuple

import trio

from clisup.errors import WorldError

__all__ = ["Executable", "VersionProbe", "find_executable"]

PROBE_LIMIT_S = 10.0
PROBE_OUTPUT_LIMIT = 4096
PIPE_GRACE_S = 0.25  # for the rest of the output, where a child of the command still holds its stdout


class Executable(NamedTuple):
    """A file that can be run, and what tells it from another one that may take its place."""

    path: str
    identity: tuple[str, int, int, int, int]


def find_executable(name: str, *, search_path: str, backend: str) -> Executable:
    """Find `name` on `search_path`, or take it as a path. Raises `WorldError(backend_unavailable)` that says which and why."""
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
    real = os.path.realpath(path)
    stat = os.stat(real)
    return Executable(path, (real, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))


class VersionProbe:
    """Runs `command --version` once for each binary that it meets."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str | None] = {}

    async def version(
        self,
        executable: Executable,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        parse: Callable[[str], str | None],
    ) -> str | None:
        """The version, or None where the command gave none within `PROBE_LIMIT_S`. A failed probe is tried again next time."""
        key = (executable.identity, argv)
        if key not in self._known:
            version = parse(await _output(argv, env))
            if version is None:
                return None
            self._known[key] = version
        return self._known[key]


async def _output(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    """What the command says, at most `PROBE_OUTPUT_LIMIT` bytes. One that does not leave is killed with its children."""
    try:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            start_new_session=True,
        )
    except OSError:
        return ""
    assert process.stdout is not None
    said = bytearray()
    try:
        with trio.move_on_after(PROBE_LIMIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_collect, process, said)
                await process.wait()
                nursery.cancel_scope.deadline = trio.current_time() + PIPE_GRACE_S
    finally:
        with trio.CancelScope(shield=True):
            _kill_group(process)
            await process.wait()
            await process.stdout.aclose()
    return said[:PROBE_OUTPUT_LIMIT].decode("utf-8", "replace")


async def _collect(process: trio.Process, said: bytearray) -> None:
    """Read to the end of the output. A command that floods is no `--version`: it is ended."""
    assert process.stdout is not None
    async for chunk in process.stdout:
        said += chunk
        if len(said) > PROBE_OUTPUT_LIMIT:
            _kill_group(process)
            return


def _kill_group(process: trio.Process) -> None:
    """SIGKILL to the command's process group while it is not reaped: its number is nobody else's then."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
