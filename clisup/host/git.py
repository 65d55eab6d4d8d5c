"""git as a child process: bounded in time and output, without hooks, prompts, pagers or the daemon's own variables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from clisup.errors import WorldError
from clisup.host.process.executables import ask

__all__ = ["GIT_AT_ONCE", "GIT_LIMIT_S", "Git", "GitOutput", "git_environment"]

GIT_LIMIT_S = 50.0
"""Limit of one git command. A client waits for 60 s."""

GIT_OUTPUT_LIMIT = 256 * 1024
"""Limit of the output of one git command. A diff has a limit of its own."""

GIT_AT_ONCE = 8
"""Limit of git processes at once. On a file system that hangs, other sessions keep the rest."""

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "TMPDIR")
_FIXED = {
    "LC_ALL": "C.UTF-8",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
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
)
_ERROR_LIMIT = 8192
_WORDS = 300


class GitOutput(NamedTuple):
    """Result of a git command. `cut` tells that the output was longer than its limit."""

    code: int
    out: str
    err: str
    cut: bool

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
    """Runner of git commands. `env` is the daemon's environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = git_environment(env)
        self._limiter = trio.CapacityLimiter(GIT_AT_ONCE)

    async def run(
        self,
        place: Sequence[str],
        *arguments: str,
        limit_bytes: int = GIT_OUTPUT_LIMIT,
        limit_s: float = GIT_LIMIT_S,
    ) -> GitOutput:
        """Run one command. `place` is `("-C", directory)` or `("--git-dir", directory)`.

        A failure of the command is a result. Raises `WorldError(git_failed)` without git, and for a command that takes
        too long.
        """
        errors = os.memfd_create("git-stderr", os.MFD_CLOEXEC)
        try:
            async with self._limiter:
                done = await ask(
                    ["git", *_OPTIONS, *place, *arguments],
                    self._env,
                    stderr=errors,
                    limit_s=limit_s,
                    limit_bytes=limit_bytes,
                )
            said = os.pread(errors, _ERROR_LIMIT, 0).decode("utf-8", "replace")
        finally:
            os.close(errors)
        cut = len(done.output.encode()) >= limit_bytes  # git was killed, or had just ended
        if not cut and (done.exit_code is None or done.exit_code < 0):
            raise await self._failure(arguments[0], limit_s, done.exit_code)
        return GitOutput(0 if cut else done.exit_code or 0, done.output, said, cut)

    async def _failure(self, command: str, limit_s: float, code: int | None) -> WorldError:
        path = self._env.get("PATH", os.defpath)
        if code is None and await trio.to_thread.run_sync(lambda: shutil.which("git", path=path)) is None:
            return WorldError(
                f"git not found on the daemon's PATH ({path})",
                kind="git_failed",
                hint="install git, or start the daemon with a PATH that has git",
                reason="no_git",
            )
        what = f"was killed by signal {-code}" if code is not None else f"did not end within {limit_s:g} s"
        return WorldError(
            f"git {command} {what}",
            kind="git_failed",
            hint="check the repository's disk, and try again",
            reason="git_failed",
        )
