"""A repository as git shows it, the worktree that a session gets of it, and the reasons why a session gets none."""

from __future__ import annotations

import os
from typing import NamedTuple

import trio

from clisup.config.session_spec import SessionWorktree
from clisup.errors import UsageError, WorldError
from clisup.host.git import Git, GitOutput
from clisup.host.safe_paths import is_within

__all__ = [
    "BRANCH_PREFIX",
    "Entry",
    "Repository",
    "check_free",
    "check_within",
    "commit_of",
    "entries",
    "failed",
    "inspect",
    "make",
    "plan",
    "refused",
    "reset_new",
    "undo",
]

BRANCH_PREFIX = "clisup/"

_LOOK_BYTES = 4096  # of a list whose first item decides


def refused(reason: str, message: str, hint: str, **data: object) -> UsageError:
    """Return the error of a repository or worktree in the wrong state. Programs branch on `reason`."""
    return UsageError(message, kind="worktree_refused", hint=hint, reason=reason, **data)


def failed(what: str, done: GitOutput) -> WorldError:
    """Return the error of a git command that failed for a reason of the machine."""
    return WorldError(
        f"cannot {what}: {done.reason}",
        kind="git_failed",
        hint="mend the cause, and try again: nothing was lost",
        reason="git_failed",
    )


class Repository(NamedTuple):
    """Repository around a directory. `prefix` is the directory's place below `top`; `branch` is None if detached."""

    top: str
    git_dir: str
    prefix: str
    branch: str | None

    @property
    def beside(self) -> str:
        """Return the directory for worktrees beside the repository's first working tree."""
        named = os.path.basename(self.git_dir) == ".git"
        return f"{os.path.dirname(self.git_dir) if named else self.top}.worktrees"


class Entry(NamedTuple):
    """Entry of `git worktree list`."""

    path: str
    branch: str | None
    locked: str | None


async def inspect(git: Git, cwd: str) -> Repository:
    """Return the repository of `cwd`. Raises `UsageError(worktree_refused)`."""
    there = ("-C", cwd)
    kind = await git.run(there, "rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    if not kind.ok:
        raise refused(
            "not_a_repository",
            f"cannot make a worktree of {cwd}: {kind.reason}",
            "give a directory of a git repository, or leave out the worktree",
        )
    if kind.line.split("\n") != ["false", "true"]:
        raise refused(
            "bare",
            f"cannot make a worktree of {cwd}: the directory is in a bare repository or in .git",
            "give a directory of a working tree",
        )
    asked = ("--path-format=absolute", "--show-toplevel", "--git-common-dir", "--show-prefix")
    places = await git.run(there, "rev-parse", *asked)
    lines = places.out.split("\n")
    if not places.ok or len(lines) != 4:  # three lines, and the end
        reason = "its path has a line break" if places.ok else places.reason
        raise refused("not_a_repository", f"cannot make a worktree of {cwd}: {reason}", "rename the directory")
    outer = await git.run(there, "rev-parse", "--show-superproject-working-tree")
    if outer.line:
        raise _submodules(f"{lines[0]} is a submodule of {outer.line}")
    branch = await git.run(there, "symbolic-ref", "-q", "--short", "HEAD")
    return Repository(lines[0], lines[1], lines[2].rstrip("/"), branch.line if branch.ok else None)


def _submodules(what: str) -> UsageError:
    return refused(
        "submodules",
        f"cannot make a worktree: {what}, and git's worktrees do not support submodules well",
        "open the session without a worktree, or in a clone",
    )


async def commit_of(git: Git, place: tuple[str, str], name: str) -> str | None:
    """Return the id of the commit that `name` means, or None."""
    found = await git.run(place, "rev-parse", "--verify", "-q", f"{name}^{{commit}}")
    return found.line if found.ok and found.line else None


async def plan(git: Git, cwd: str, owner: str, name: str, base: str | None) -> tuple[SessionWorktree, str]:
    """Return the worktree that a session would get, and the session's cwd in it. Raises `UsageError(worktree_refused)`."""
    repository = await inspect(git, cwd)
    there = ("-C", cwd)
    commit = await commit_of(git, there, base or "HEAD")
    if commit is None and base is None:
        raise refused(
            "no_commit",
            f"cannot make a worktree of {repository.top}: the repository has no commit yet",
            "make a first commit: git commit --allow-empty -m 'Begin'",
        )
    if commit is None:
        raise refused(
            "base_not_found",
            f"cannot make a worktree of {repository.top}: {base!r} names no commit",
            "name a branch, a tag or a commit",
        )
    if (await git.run(there, "cat-file", "-e", f"{commit}:.gitmodules")).ok:
        raise _submodules(f"{repository.top} has submodules")
    prefix = repository.prefix
    if prefix and not (await git.run(there, "cat-file", "-e", f"{commit}:{prefix}")).ok:
        raise refused(
            "directory_not_in_base",
            f"cannot make a worktree for {cwd}: commit {commit[:12]} has no directory {prefix}",
            "commit the directory first, or open the session at the top of the repository",
        )
    if not (await git.run(there, "check-ref-format", "--branch", BRANCH_PREFIX + name)).ok:
        raise UsageError(
            f"a branch cannot be named {BRANCH_PREFIX}{name}",
            hint="give another name: letters, digits and dashes",
            param="worktree",
        )
    status = await git.run(there, "status", "--porcelain", "-z", limit_bytes=_LOOK_BYTES)
    path = os.path.join(repository.beside, name)
    made = SessionWorktree(
        owner=owner,
        repository=repository.top,
        git_dir=repository.git_dir,
        path=path,
        branch=BRANCH_PREFIX + name,
        base=commit,
        target=repository.branch,
        left_changes=bool(status.out),
    )
    return made, os.path.join(path, prefix) if prefix else path


async def entries(git: Git, git_dir: str) -> list[Entry]:
    """Return the worktrees of a repository, the first one included. Raises `UsageError(worktree_refused)`."""
    listed = await git.run(("--git-dir", git_dir), "worktree", "list", "--porcelain")
    if not listed.ok:
        raise refused(
            "repository_gone",
            f"repository {git_dir} cannot be read: {listed.reason}",
            "move the repository back to its place, then try again; the worktree's files were not changed",
        )
    return [_entry(paragraph) for paragraph in listed.out.split("\n\n") if paragraph.strip()]


def _entry(paragraph: str) -> Entry:
    fields = dict(line.partition(" ")[::2] for line in paragraph.strip("\n").split("\n"))
    branch = fields.get("branch")
    return Entry(
        fields.get("worktree", ""), branch.removeprefix("refs/heads/") if branch else None, fields.get("locked")
    )


async def check_free(git: Git, wanted: SessionWorktree) -> None:
    """Refuse a worktree whose branch or directory exists. Raises `UsageError(worktree_refused)`."""
    another = "give another name, or remove what is there"
    for branch in (wanted.branch, BRANCH_PREFIX.rstrip("/")):
        if (await git.run(("--git-dir", wanted.git_dir), "show-ref", "--verify", "-q", f"refs/heads/{branch}")).ok:
            raise refused(
                "branch_taken",
                f"cannot make branch {wanted.branch}: branch {branch} exists in {wanted.repository}",
                another,
                branch=branch,
            )
    if await trio.to_thread.run_sync(os.path.lexists, wanted.path):
        raise refused(
            "directory_taken", f"cannot make a worktree at {wanted.path}: the path exists", another, path=wanted.path
        )


async def check_within(wanted: SessionWorktree, cwd: str, directory: str | None) -> None:
    """Refuse a worktree if its place, its repository or the session's cwd in it is outside of a directory.

    Raises `UsageError(worktree_refused)`.
    """
    if directory is None:
        return
    places = {"worktree": wanted.path, "repository": wanted.repository, "git directory": wanted.git_dir, "cwd": cwd}
    for what, path in places.items():
        if not await trio.to_thread.run_sync(is_within, path, directory):
            raise refused(
                "outside",
                f"cannot make a worktree at {wanted.path}: the {what} {path} is outside of {directory}",
                "leave out the worktree, or allow a directory that holds the repository and what lies beside it",
                path=path,
            )


async def make(git: Git, wanted: SessionWorktree) -> None:
    """Make branch and worktree without files. The branch may be there from an earlier attempt.

    Raises `WorldError(git_failed)`.
    """
    place = ("--git-dir", wanted.git_dir)
    there = (await git.run(place, "show-ref", "--verify", "-q", f"refs/heads/{wanted.branch}")).ok
    what = (wanted.path, wanted.branch) if there else ("-b", wanted.branch, wanted.path, wanted.base)
    done = await git.run(place, "worktree", "add", "--no-checkout", *what)
    if not done.ok:
        raise failed(f"make a worktree at {wanted.path}", done)


async def reset_new(git: Git, wanted: SessionWorktree) -> None:
    """Check out the files of a new worktree, unless an earlier attempt did. Raises `WorldError(git_failed)`.

    git writes the index after the files. Without an index, no person and no CLI has worked there.
    """
    if await _has_index(git, wanted):
        return
    done = await git.run(("-C", wanted.path), "reset", "--hard", "-q")
    if not done.ok:
        raise failed(f"check out {wanted.base[:12]} at {wanted.path}", done)


async def _has_index(git: Git, wanted: SessionWorktree) -> bool:
    index = await git.run(("-C", wanted.path), "rev-parse", "--path-format=absolute", "--git-path", "index")
    return index.ok and await trio.to_thread.run_sync(os.path.exists, index.line)


async def undo(git: Git, wanted: SessionWorktree) -> None:
    """Remove a worktree whose making failed, and its branch. A worktree with an index stays: its files are complete."""
    if await _has_index(git, wanted):
        return
    place = ("--git-dir", wanted.git_dir)
    await git.run(place, "worktree", "remove", "--force", wanted.path)
    await git.run(place, "update-ref", "-d", f"refs/heads/{wanted.branch}", wanted.base)
