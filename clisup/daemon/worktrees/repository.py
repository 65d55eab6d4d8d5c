"""A repository as git shows it, the worktree that a session gets of it, and the reasons why a session gets none."""

from __future__ import annotations

import os
from typing import NamedTuple

from clisup.config.session_spec import SessionWorktree
from clisup.daemon.worktrees.links import fault_of_link, find_own_git_dir, foreign_tree, write_link
from clisup.errors import UsageError, WorldError
from clisup.host.files import write_atomic
from clisup.host.git import Git, GitOutput, GitPlace
from clisup.host.safe_paths import is_within
from clisup.host.threads import in_thread
from clisup.store.worktree_records import BRANCH_PREFIX, directory_of_worktrees

__all__ = [
    "Entry",
    "Repository",
    "WorktreePlan",
    "check_free",
    "check_within",
    "commit_of",
    "entries",
    "failed",
    "files_of",
    "holder_of",
    "inspect",
    "located",
    "make",
    "plan",
    "refused",
    "reset_new",
    "store_of",
    "undo",
]

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

    place: GitPlace
    prefix: str
    branch: str | None

    @property
    def top(self) -> str:
        """Return the working tree."""
        return self.place.work_tree or ""

    @property
    def git_dir(self) -> str:
        """Return the repository's common directory."""
        return self.place.common_dir

    @property
    def beside(self) -> str:
        """Return the directory for worktrees beside the repository's first working tree."""
        return directory_of_worktrees(self.git_dir, self.top)


def store_of(worktree: SessionWorktree) -> GitPlace:
    """Return the place of commands that need no files."""
    return GitPlace(worktree.git_dir, worktree.git_dir)


def files_of(worktree: SessionWorktree) -> GitPlace:
    """Return the place of commands on the files of a worktree."""
    own = worktree.own_git_dir or os.path.join(worktree.git_dir, "worktrees", os.path.basename(worktree.path))
    return GitPlace(own, worktree.git_dir, worktree.path)


async def located(worktree: SessionWorktree) -> SessionWorktree:
    """Return the worktree with its own directory in the repository, which records of older versions lack."""
    if worktree.own_git_dir is not None:
        return worktree
    own = await in_thread(find_own_git_dir, worktree.git_dir, worktree.path)
    return worktree.model_copy(update={"own_git_dir": own})


class Entry(NamedTuple):
    """Entry of `git worktree list`."""

    path: str
    branch: str | None
    locked: str | None


async def inspect(git: Git, cwd: str) -> Repository:
    """Return the repository of `cwd`. Raises `UsageError(worktree_refused)`."""
    kind = await git.find(cwd, "--is-bare-repository", "--is-inside-work-tree")
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
    asked = ("--path-format=absolute", "--show-toplevel", "--git-common-dir", "--git-dir", "--show-prefix")
    places = await git.find(cwd, *asked)
    lines = places.out.split("\n")
    if not places.ok or len(lines) != 5:  # four lines, and the end
        reason = "its path has a line break" if places.ok else places.reason
        raise refused("not_a_repository", f"cannot make a worktree of {cwd}: {reason}", "rename the directory")
    outer = await git.find(cwd, "--show-superproject-working-tree")
    if outer.line:
        raise _submodules(f"{lines[0]} is a submodule of {outer.line}")
    top, common, own = lines[:3]
    if (fault := await in_thread(foreign_tree, top, common, own)) is not None:
        raise refused(
            "not_a_repository",
            f"cannot make a worktree of {cwd}: {fault}",
            f"check {top}/.git; git worktree repair mends the links of a worktree that was moved",
        )
    place = GitPlace(own, common, top)
    branch = await git.run(place, "symbolic-ref", "-q", "--short", "HEAD")
    return Repository(place, lines[3].rstrip("/"), branch.line if branch.ok else None)


def _submodules(what: str) -> UsageError:
    return refused(
        "submodules",
        f"cannot make a worktree: {what}, and git's worktrees do not support submodules well",
        "open the session without a worktree, or in a clone",
    )


async def commit_of(git: Git, place: GitPlace, name: str) -> str | None:
    """Return the id of the commit that `name` means, or None."""
    found = await git.run(place, "rev-parse", "--verify", "-q", f"{name}^{{commit}}")
    return found.line if found.ok and found.line else None


class WorktreePlan(NamedTuple):
    """Worktree that a session would get, the session's cwd in it, and the working tree of the request."""

    worktree: SessionWorktree
    cwd: str
    source: GitPlace


async def plan(git: Git, cwd: str, owner: str, name: str, base: str | None) -> WorktreePlan:
    """Return the worktree that a session would get. Raises `UsageError(worktree_refused)`."""
    repository = await inspect(git, cwd)
    there = repository.place
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
    status = await git.run(there, "status", "--porcelain", "-z", "--ignore-submodules=dirty", limit_bytes=_LOOK_BYTES)
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
    return WorktreePlan(made, os.path.join(path, prefix) if prefix else path, there)


async def entries(git: Git, worktree: SessionWorktree) -> list[Entry]:
    """Return the worktrees of a repository, the first one included. Raises `UsageError(worktree_refused)`."""
    listed = await git.run(store_of(worktree), "worktree", "list", "--porcelain")
    if not listed.ok:
        raise refused(
            "repository_gone",
            f"repository {worktree.git_dir} cannot be read: {listed.reason}",
            "move the repository back to its place, then try again; the worktree's files were not changed",
        )
    first, *linked = [_entry(paragraph) for paragraph in listed.out.split("\n\n") if paragraph.strip()]
    # git takes the private common directory of its command for the first working tree.
    named = os.path.basename(worktree.git_dir) == ".git"
    return [first._replace(path=os.path.dirname(worktree.git_dir) if named else worktree.repository), *linked]


async def holder_of(git: Git, worktree: SessionWorktree, branch: str) -> GitPlace | None:
    """Return the working tree that has a branch checked out, or None. Raises `UsageError(worktree_refused)`.

    A tree that the repository names, but that does not name the repository, is refused.
    """
    known = await entries(git, worktree)
    at = next((at for at, entry in enumerate(known) if entry.branch == branch), None)
    if at is None:
        return None
    path, common = known[at].path, worktree.git_dir
    own = common if at == 0 else await in_thread(find_own_git_dir, common, path)
    fault: str | None = f"{common} has no single entry for it"
    if own is not None:
        fault = await in_thread(fault_of_link, common, own, path)
        if fault is None:
            return GitPlace(own, common, path)
    raise refused(
        "target_busy",
        f"cannot land on {branch}, which is checked out in {path}: {fault}",
        f"run git worktree repair in {worktree.repository}, then land again; nothing was changed",
        target=branch,
    )


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
        if (await git.run(store_of(wanted), "show-ref", "--verify", "-q", f"refs/heads/{branch}")).ok:
            raise refused(
                "branch_taken",
                f"cannot make branch {wanted.branch}: branch {branch} exists in {wanted.repository}",
                another,
                branch=branch,
            )
    if await in_thread(os.path.lexists, wanted.path):
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
        if not await in_thread(is_within, path, directory):
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
    store = store_of(wanted)
    there = (await git.run(store, "show-ref", "--verify", "-q", f"refs/heads/{wanted.branch}")).ok
    what = (wanted.path, wanted.branch) if there else ("-b", wanted.branch, wanted.path, wanted.base)
    done = await git.run(store, "worktree", "add", "--no-checkout", *what)
    if not done.ok:
        raise failed(f"make a worktree at {wanted.path}", done)


async def reset_new(git: Git, wanted: SessionWorktree, source: GitPlace) -> None:
    """Check out the files of a new worktree, unless an earlier attempt did. Raises `WorldError(git_failed)`.

    git writes the index after the files. Without an index, no person and no CLI has worked there. `source` is the working
    tree of the request: a sparse checkout gives a sparse one.
    """
    place = files_of(wanted)
    if await _has_index(place):
        return
    sparse = await git.sparse_settings(source)

    def prepare() -> None:
        write_link(wanted)
        if sparse:
            write_atomic(os.path.join(place.git_dir, "config.worktree"), sparse)

    await in_thread(prepare)
    done = await git.run(place, "reset", "--hard", "-q")
    if not done.ok:
        raise failed(f"check out {wanted.base[:12]} at {wanted.path}", done)


async def _has_index(place: GitPlace) -> bool:
    return await in_thread(os.path.exists, os.path.join(place.git_dir, "index"))


async def undo(git: Git, wanted: SessionWorktree) -> None:
    """Remove a worktree whose making failed, and its branch. A worktree with an index stays: its files are complete."""
    if await _has_index(files_of(wanted)):
        return
    await git.run(store_of(wanted), "worktree", "remove", "--force", wanted.path)
    await git.run(store_of(wanted), "update-ref", "-d", f"refs/heads/{wanted.branch}", wanted.base)
