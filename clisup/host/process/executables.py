"""Executables of CLIs and their versions, and the trial start of a daemon with the present code and configuration.

Versions are cached by the identity of the file, so an update is noticed.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import trio

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.process.carrying import CarriedEnvironment, carried_file, clean_environment
from clisup.host.process.helpers import DISCARD, HELPER_LIMIT_S, HELPER_OUTPUT_LIMIT, ask, run_helper
from clisup.model.lines.sequences import without_sequences

PROBE_LIMIT_S = HELPER_LIMIT_S
LAST_WORDS_S = 5.0
"""Seconds for the last words of a command that has already hung for `PROBE_LIMIT_S`."""
_LAST_WORDS = 500
FAILED_PROBE_S = 30.0  # for so long, a caller with `patience_s` accepts the failure of an earlier probe


class Executable(NamedTuple):
    """Executable file, and its identity, which differs after a replacement."""

    path: str
    identity: tuple[str, int, int, int, int]

    @property
    def real(self) -> str:
        """Return the path with all links resolved."""
        return self.identity[0]


_real: dict[str, str] = {}
"""Real path of each found path. The real path stays while stat shows the same file."""


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
    executable, and only this element is looked up on `search_path`.
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


class VersionProbe:
    """Probe that runs `command --version` once for each binary. Callers during a run wait for the same answer."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str | None] = {}
        self._asking: dict[tuple[object, ...], _PendingProbe] = {}
        self._failed: dict[tuple[object, ...], float] = {}
        self._why: dict[tuple[object, ...], tuple[str, str]] = {}

    def known(self, executable: Executable, argv: tuple[str, ...]) -> str | None:
        """Return the version from an earlier probe, or None without a probe."""
        return self._known.get((executable.identity, argv))

    def why(self, executable: Executable, argv: tuple[str, ...], hide: Callable[[str], str]) -> str:
        """Return the end of the last probe without a version: the exit code and the last words. "" without such a probe."""
        end, words = self._why.get((executable.identity, argv), ("", ""))
        words = hide(words).strip()[-_LAST_WORDS:]  # hidden before they are cut, or half a secret would stay
        return f"{end} and said: {words}" if words else end

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

        `patience_s` bounds the wait of the call, and the probe goes on for later callers. The call then also does not wait
        for a probe that failed in the last `FAILED_PROBE_S`.
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
            answer = await ask(argv, env, purpose="version", stderr=DISCARD, limit_s=PROBE_LIMIT_S)
            asking.version = parse(answer.output)
            if asking.version is None:
                asking.version, self._why[key] = await _ask_again(argv, env, parse, hung=answer.exit_code is None)
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


async def _ask_again(
    argv: tuple[str, ...], env: Mapping[str, str], parse: Callable[[str], str | None], *, hung: bool
) -> tuple[str | None, tuple[str, str]]:
    """Ask once more, with stderr. Return the version that stands there, or None, and the command's end and words instead.

    A launcher tells on stderr why it cannot start its CLI: no node, no version chosen, no shebang.
    """
    try:
        limit_s = LAST_WORDS_S if hung else PROBE_LIMIT_S
        answer = await run_helper(argv, env, purpose="version", limit_s=limit_s)
    except OSError as error:
        return None, (f"it cannot be started: {error.strerror}", "")
    if answer.exit_code is None:
        end = f"it had not ended after {LAST_WORDS_S if hung else PROBE_LIMIT_S:g} s"
    elif answer.exit_code < 0:
        end = f"signal {-answer.exit_code} ended it"
    else:
        end = f"it exited with code {answer.exit_code}"
    words = without_sequences(answer.output)
    if len(answer.output.encode()) >= HELPER_OUTPUT_LIMIT:  # the output is cut: the last word may be half a secret
        words = words[: max(words.rfind(" "), words.rfind("\n"), 0)]
    return parse(answer.output), (end if words.strip() else f"{end} and said nothing", words)


class _PendingProbe:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.version: str | None = None
        self.error: Exception | None = None


TRIAL_LIMIT_S = 30.0
TRIAL_OUTPUT_LIMIT = 1024 * 1024
_WORDS = 2000  # limit of characters kept from the output


class TrialRefusal(NamedTuple):
    """Reason for a failed trial start: the message without the frame, the hint, and the exit code.

    The exit code is None if the daemon hung.
    """

    reason: str
    hint: str
    code: int | None


async def try_start(argv: Sequence[str], carried: CarriedEnvironment) -> TrialRefusal | None:
    """Return None if `clisup ARGV --check` succeeds, with the environment of a successor."""
    fd = carried_file(carried)
    try:
        done = await ask(
            [sys.executable, "-P", "-m", "clisup", *argv, "--check"],
            clean_environment(carried.env, 0),
            purpose="trial start",
            stdin=fd,
            limit_s=TRIAL_LIMIT_S,
            limit_bytes=TRIAL_OUTPUT_LIMIT,
        )
    finally:
        os.close(fd)
    if done.exit_code is None:
        return TrialRefusal(f"it did not answer within {TRIAL_LIMIT_S:g} s", "", None)
    # `clisup.cli.failure` prints one line, and perhaps one line of hint.
    text, _, hint = done.output[-_WORDS:].strip().partition("\n  hint: ")
    reason = text.removeprefix("clisup: ") or f"it ended with status {done.exit_code}"
    return TrialRefusal(reason, hint, done.exit_code) if done.exit_code else None
