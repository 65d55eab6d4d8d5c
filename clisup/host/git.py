"""git as a helper program: contained, bounded in time and output, and without the programs that a repository names.

A model's tool may have written anything into the repository and the worktree. So git searches for no repository: it gets
the directories (`GitPlace`). It reads no settings of the repository either, but a private copy of the harmless ones: its
common directory (GIT_COMMON_DIR, gitrepository-layout(5)) is a directory of links to the real one, with a configuration
of its own. A tool cannot change the settings between a check and their use, because git reads only what was checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

import trio

from clisup.errors import UsageError, WorldError
from clisup.host.files import make_private_dir, read_file, storage_error
from clisup.host.git_settings import Setting, allowed_settings, filters_of, is_sparse, parsed, rendered
from clisup.host.process.helpers import HelperOutput, ask
from clisup.host.threads import in_thread

__all__ = ["GIT_AT_ONCE", "GIT_LIMIT_S", "Git", "GitOutput", "GitPlace", "git_environment"]

GIT_LIMIT_S = 50.0
"""Limit of one git command. A client waits for 60 s."""

GIT_OUTPUT_LIMIT = 256 * 1024
"""Limit of the output of one git command. A diff has a limit of its own."""

GIT_AT_ONCE = 8
"""Limit of git processes at once. On a file system that hangs, other sessions keep the rest."""

GIT_CONFIG_LIMIT = 1024 * 1024
"""Limit of a repository's configuration file."""

GIT_ENTRIES_LIMIT = 500
"""Limit of files and directories at the top of `.git`."""

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "TMPDIR")
_FIXED = {
    "LC_ALL": "C.UTF-8",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",  # git talks to no other repository
}
_OPTIONS = (
    "--no-pager",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "commit.gpgSign=false"),  # gpg may ask for a passphrase
    *("-c", "gc.auto=0"),  # no process stays behind
    *("-c", "maintenance.auto=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "log.showSignature=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "diff.submodule=short"),  # git would run in a submodule, with the submodule's own settings
    *("-c", "diff.ignoreSubmodules=dirty"),
    *("-c", "worktree.useRelativePaths=false"),
)
_PRIVATE = frozenset(("config", "config.lock", "config.worktree", "hooks", "commondir", "gitdir"))
"""Entries of `.git` that git does not get."""
_NEEDED = ("worktrees", "logs")  # git makes entries in them, which a dangling link would prevent
_MAX_KNOWN = 64
_ERROR_LIMIT = 8192
_WORDS = 300


class GitPlace(NamedTuple):
    """Repository of a git command: its directory with HEAD and index, its common directory, and its working tree.

    Only linked worktrees have two directories. A command that needs no files has no working tree.
    """

    git_dir: str
    common_dir: str
    work_tree: str | None = None


class GitOutput(NamedTuple):
    """Result of a git command. `cut` tells that the output was longer than its limit."""

    code: int
    data: bytes
    err: str
    cut: bool

    @property
    def out(self) -> str:
        """Return the output as text."""
        return self.data.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Tell whether git succeeded."""
        return self.code == 0

    @property
    def line(self) -> str:
        """Return the output without the final newline."""
        return self.out.rstrip("\n")

    @property
    def reason(self) -> str:
        """Return git's own reason for a failure: its line `fatal:` or `error:`, else its last line."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        named = [line for line in lines if line.startswith(("fatal:", "error:"))]
        chosen = (named or lines[-1:] or [f"git ended with status {self.code}"])[0]
        return chosen.removeprefix("fatal:").removeprefix("error:").strip()[:_WORDS]


def git_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of git: few variables of the daemon, none of GIT_DIR and its like."""
    return {name: env[name] for name in _KEPT if name in env} | _FIXED


class Git:
    """Runner of git commands. `env` is the daemon's environment. Private copies of settings are below `state_dir`."""

    def __init__(self, env: Mapping[str, str], state_dir: str) -> None:
        self._env = git_environment(env)
        self._copies = os.path.join(state_dir, "git")
        self._limiter = trio.CapacityLimiter(GIT_AT_ONCE)
        self._known: dict[bytes, list[Setting]] = {}  # by the digest of a configuration file

    def clear(self) -> None:
        """Remove the copies that a killed daemon has left. Blocks. Call this before any command."""
        shutil.rmtree(self._copies, ignore_errors=True)

    async def run(
        self,
        place: GitPlace,
        *arguments: str,
        stdin: bytes = b"",
        limit_bytes: int = GIT_OUTPUT_LIMIT,
        limit_s: float = GIT_LIMIT_S,
    ) -> GitOutput:
        """Run one command in a known repository.

        A failure of the command is a result. Raises `WorldError(git_failed)` without git, and for a command that takes
        too long. Raises `UsageError(worktree_refused)` for a repository whose settings define a filter of its own.
        """
        settings = await self._settings(place)
        async with self._copy(place, settings) as common:
            places = {"GIT_DIR": place.git_dir, "GIT_COMMON_DIR": common}
            if place.work_tree is not None:
                places["GIT_WORK_TREE"] = place.work_tree
            await self._check_filters(place, settings, places)
            return await self._run(arguments, places, stdin, limit_bytes, limit_s)

    async def find(self, directory: str, *arguments: str) -> GitOutput:
        """Run `git rev-parse` in a directory that may be in any repository. It reads the settings and runs no program."""
        return await self._run(("-C", directory, "rev-parse", *arguments), {}, b"", GIT_OUTPUT_LIMIT, GIT_LIMIT_S)

    async def sparse_settings(self, place: GitPlace) -> bytes:
        """Return a `config.worktree` with the settings of a sparse checkout, empty if the checkout is not sparse."""
        return rendered(filter(is_sparse, await self._own_settings(place)))

    # -- settings of the repository ------------------------------------------------------------------------------------

    async def _settings(self, place: GitPlace) -> list[Setting]:
        """Return all settings of the repository, without included files."""
        return await self._listed(os.path.join(place.common_dir, "config")) + await self._own_settings(place)

    async def _own_settings(self, place: GitPlace) -> list[Setting]:
        """Return the settings of this working tree alone, if the repository has such settings."""
        shared = await self._listed(os.path.join(place.common_dir, "config"))
        if (b"extensions.worktreeconfig", b"true") not in shared:
            return []
        return await self._listed(os.path.join(place.git_dir, "config.worktree"))

    async def _listed(self, path: str) -> list[Setting]:
        try:
            data = await in_thread(partial(read_file, path, GIT_CONFIG_LIMIT, follow=True))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(f"cannot read {path}: {error.strerror}", "check the repository's settings") from None
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            command = ("config", "--file", "-", "--no-includes", "--list", "-z")
            nowhere = {"GIT_DIR": "/dev/null"}  # git searches for no repository
            done = await self._run(command, nowhere, data, 2 * GIT_CONFIG_LIMIT, GIT_LIMIT_S) if data else None
            if done is not None and (not done.ok or done.cut):
                raise _failed(f"cannot read {path}: {done.reason}", "check the repository's settings")
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[digest] = parsed(done.data) if done is not None else []
        return self._known[digest]

    async def _check_filters(self, place: GitPlace, settings: list[Setting], places: dict[str, str]) -> None:
        """Refuse a repository with a filter that the user's own settings do not define.

        Without the filter, git would take the filtered files for changed ones, and commit them as they are.
        """
        named = filters_of(settings)
        if not named or place.work_tree is None:
            return
        command = ("config", "--list", "-z")
        own = filters_of(parsed((await self._run(command, places, b"", 2 * GIT_CONFIG_LIMIT, GIT_LIMIT_S)).data))
        if unknown := sorted(named - own):
            name = unknown[0].decode("utf-8", "replace")
            path = os.path.join(place.common_dir, "config")
            raise UsageError(
                f"the settings of repository {place.common_dir} define the filter {name!r}, and clisup runs no program that"
                " a repository names",
                kind="worktree_refused",
                hint=f"define the filter in your own ~/.gitconfig, or remove it from {path}",
                reason="repository_filter",
            )

    @asynccontextmanager
    async def _copy(self, place: GitPlace, settings: list[Setting]) -> AsyncIterator[str]:
        """Make a common directory with links to the real one, and with the allowed settings. Remove it afterwards."""
        data = rendered(allowed_settings(settings))
        copy = await in_thread(self._make_copy, place.common_dir, data)
        try:
            yield copy
        finally:
            with trio.CancelScope(shield=True):
                await in_thread(lambda: shutil.rmtree(copy, ignore_errors=True))

    def _make_copy(self, common_dir: str, data: bytes) -> str:
        try:
            names = _entries(common_dir)
        except OSError as error:
            raise _failed(f"cannot read {common_dir}: {error.strerror}", "check the repository") from None
        try:
            make_private_dir(self._copies)
            copy = tempfile.mkdtemp(dir=self._copies)
            for name in names:
                os.symlink(os.path.join(common_dir, name), os.path.join(copy, name))
            with open(os.path.join(copy, "config"), "xb") as file:
                file.write(data)
        except OSError as error:
            raise storage_error("make a copy of the settings in", self._copies, error) from None
        return copy

    # -- the program ---------------------------------------------------------------------------------------------------

    async def _run(
        self, arguments: Sequence[str], places: dict[str, str], stdin: bytes, limit_bytes: int, limit_s: float
    ) -> GitOutput:
        errors = os.memfd_create("git-stderr", os.MFD_CLOEXEC)
        name = next(word for word in arguments if not word.startswith("-") and "/" not in word and "=" not in word)
        try:
            async with self._limiter:
                done = await ask(
                    ["git", *_OPTIONS, *arguments],
                    self._env | places,
                    purpose=name,
                    stdin=stdin,
                    stderr=errors,
                    limit_s=limit_s,
                    limit_bytes=limit_bytes,
                )
            said = os.pread(errors, _ERROR_LIMIT, 0).decode("utf-8", "replace")
        finally:
            os.close(errors)
        cut = len(done.data) >= limit_bytes  # git was killed, or had just ended
        if not cut and (done.exit_code is None or done.exit_code < 0):
            raise await self._failure(name, limit_s, done)
        return GitOutput(0 if cut else done.exit_code or 0, done.data, said, cut)

    async def _failure(self, command: str, limit_s: float, done: HelperOutput) -> WorldError:
        path, code = self._env.get("PATH", os.defpath), done.exit_code
        if code is None and await in_thread(lambda: shutil.which("git", path=path)) is None:
            return WorldError(
                f"git not found on the daemon's PATH ({path})",
                kind="git_failed",
                hint="install git, or start the daemon with a PATH that has git",
                reason="no_git",
            )
        what = f"was killed by signal {-code}" if code is not None else f"did not end within {limit_s:g} s"
        return _failed(f"git {command} {what}", "check the repository's disk, and try again")


def _failed(message: str, hint: str) -> WorldError:
    return WorldError(message, kind="git_failed", hint=hint, reason="git_failed")


def _entries(common_dir: str) -> list[str]:
    """Return the names in `.git` that git gets, and make the directories that git writes to. Raises `OSError`."""
    if not all(os.path.exists(os.path.join(common_dir, name)) for name in ("HEAD", "objects")):
        return []  # git says better that this is no repository
    for name in _NEEDED:
        with suppress(OSError):
            os.mkdir(os.path.join(common_dir, name))
    names = []
    with os.scandir(common_dir) as entries:
        for entry in entries:
            if entry.name not in _PRIVATE:
                names.append(entry.name)
            if len(names) > GIT_ENTRIES_LIMIT:
                raise OSError(errno.E2BIG, f"{common_dir} has more than {GIT_ENTRIES_LIMIT} entries")
    return names
