"""Changes in a session's worktree: their comparison with the base, their landing on a branch, their removal."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from clisup.config.session_spec import SessionWorktree
from clisup.daemon.worktrees.links import fault_of_link
from clisup.daemon.worktrees.repository import (
    commit_of,
    entries,
    failed,
    files_of,
    holder_of,
    located,
    refused,
    store_of,
)
from clisup.errors import UsageError
from clisup.host.git import Git, GitOutput
from clisup.host.threads import in_thread
from clisup.wire.results import ChangedFile, DiffResult, DiscardResult, LandResult, WorktreeCommit

__all__ = ["MAX_LISTED", "Standing", "compare", "discard", "land", "remove_finished", "standing_of"]

MAX_LISTED = 500
"""Limit of commits, files and untracked files in one answer."""

_LIST_BYTES = 1024 * 1024
_NAMES_BYTES = 64 * 1024 * 1024
"""Limit of the names of files that one commit adds or changes."""

_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short", "--ignore-submodules=dirty")
_NOBODY = ("-c", "user.name=clisup", "-c", "user.email=clisup@localhost")


class Standing(NamedTuple):
    """State of a worktree: its commit, and what would be lost with it."""

    head: str
    branch: str | None
    wanted: str
    uncommitted: int
    ahead: int
    locked: str | None

    @property
    def reasons(self) -> list[str]:
        """Return the reasons why the worktree must stay, none if nothing would be lost."""
        found = []
        if self.uncommitted:
            found.append(_count(self.uncommitted, "uncommitted file"))
        if self.ahead:
            found.append(f"{_count(self.ahead, 'commit')} not landed")
        if self.branch != self.wanted:
            found.append(f"{self.branch or 'a detached head'} is checked out instead of {self.wanted}")
        if self.locked is not None:
            found.append("git locks the worktree" + (f" ({self.locked})" if self.locked else ""))
        return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def standing_of(git: Git, worktree: SessionWorktree) -> Standing:
    """Return the state of a worktree. Raises `UsageError(worktree_refused)` if worktree or repository is gone."""
    known = await entries(git, worktree)
    entry = next((entry for entry in known if entry.path == worktree.path), None)
    if entry is None or not await in_thread(os.path.isdir, worktree.path):
        raise refused(
            "worktree_gone",
            f"the worktree at {worktree.path} is gone",
            f"its commits are on branch {worktree.branch}; clisup discard removes the rest",
            branch=worktree.branch,
        )
    place = files_of(worktree)
    fault = await in_thread(fault_of_link, place.common_dir, place.git_dir, worktree.path)
    head = None if fault else await commit_of(git, place, "HEAD")
    if head is None:
        raise refused(
            "worktree_gone",
            f"{worktree.path} is no worktree of {worktree.repository} any more: {fault or 'its HEAD names no commit'}",
            f"run git worktree repair in {worktree.repository}, then try again; nothing was removed",
        )
    return Standing(
        head,
        entry.branch,
        worktree.branch,
        len(await _uncommitted(git, worktree)),
        await _ahead(git, worktree),
        entry.locked,
    )


async def _uncommitted(git: Git, worktree: SessionWorktree) -> list[str]:
    """Return the lines of `git status`: changed and untracked files, one entry for each."""
    status = await _listed(
        git,
        worktree,
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignore-submodules=dirty",
    )
    return [line for line in status.out.split("\0") if line]


async def _listed(git: Git, worktree: SessionWorktree, *arguments: str, limit_bytes: int = _LIST_BYTES) -> GitOutput:
    done = await git.run(files_of(worktree), *arguments, limit_bytes=limit_bytes)
    if not done.ok:
        raise failed(f"read {worktree.path}", done)
    return done


async def _target(git: Git, worktree: SessionWorktree) -> str | None:
    """Return the commit of the branch to land on, or None without such a branch."""
    return await commit_of(git, store_of(worktree), f"refs/heads/{worktree.target}") if worktree.target else None


async def _ahead(git: Git, worktree: SessionWorktree) -> int:
    """Return the number of commits of the worktree that its target lacks."""
    target = await _target(git, worktree)
    own = [name for name in ("HEAD", f"refs/heads/{worktree.branch}") if await commit_of(git, files_of(worktree), name)]
    known = [worktree.base, *([target] if target else [])]
    return int((await _listed(git, worktree, "rev-list", "--count", *own, "--not", *known)).line)


# -- diff --------------------------------------------------------------------------------------------------------------


async def compare(git: Git, worktree: SessionWorktree, *, patch: bool, max_bytes: int) -> DiffResult:
    """Return the changes of a worktree since its base. Raises `UsageError(worktree_refused)`, `WorldError(git_failed)`."""
    worktree = await located(worktree)
    standing = await standing_of(git, worktree)
    since = await _since(git, worktree, standing.head)
    commits = await _listed(git, worktree, "log", "--format=%H %s", f"-n{MAX_LISTED}", f"{since}..HEAD")
    numbers = await _listed(git, worktree, "diff", *_PLAIN, "--numstat", "--no-renames", "-z", since, "--")
    untracked = await _listed(git, worktree, "ls-files", "--others", "--exclude-standard", "-z")
    text = await _listed(git, worktree, "diff", *_PLAIN, "-M", since, "--", limit_bytes=max_bytes) if patch else None
    files = [_file(line) for line in numbers.out.split("\0") if line.count("\t") >= 2]
    loose = [name for name in untracked.out.split("\0") if name]
    return DiffResult(
        path=worktree.path,
        branch=worktree.branch,
        target=worktree.target,
        base=since,
        head=standing.head,
        commits=[WorktreeCommit(id=line[:40], subject=line[41:]) for line in commits.line.split("\n") if line],
        not_landed=standing.ahead,
        files=files[:MAX_LISTED],
        untracked=loose[:MAX_LISTED],
        uncommitted=standing.uncommitted,
        diff=text.out if text is not None else None,
        truncated=bool(text is not None and text.cut) or max(len(files), len(loose)) > MAX_LISTED,
    )


async def _since(git: Git, worktree: SessionWorktree, head: str) -> str:
    """Return the commit to compare with: the base, or a later one of the target onto which the branch was rebased."""
    target = await _target(git, worktree)
    if target is None:
        return worktree.base
    common = await git.run(files_of(worktree), "merge-base", head, target)
    later = common.ok and common.line not in (head, worktree.base)
    if later and (await _contains(git, worktree, worktree.base, common.line)):
        return common.line
    return worktree.base


async def _contains(git: Git, worktree: SessionWorktree, older: str, newer: str) -> bool:
    return (await git.run(store_of(worktree), "merge-base", "--is-ancestor", older, newer)).ok


def _file(line: str) -> ChangedFile:
    added, deleted, path = line.split("\t", 2)
    return ChangedFile(path=path, added=_number(added), deleted=_number(deleted))


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None  # a binary file has "-"


# -- land --------------------------------------------------------------------------------------------------------------


async def land(git: Git, worktree: SessionWorktree, message: str | None) -> LandResult:
    """Move the target branch forward to the worktree's commit. With `message`, commit all changes first.

    Raises `UsageError(worktree_refused)`, `WorldError(git_failed)`. A refusal changes nothing but the commit of `message`.
    """
    worktree = await located(worktree)
    standing = await standing_of(git, worktree)
    target, before = await _landable(git, worktree, standing, message is not None)
    committed = None
    if standing.uncommitted and message is not None:
        committed = standing.head if (head := await _commit(git, worktree, message)) is None else head
    head = committed or standing.head
    if before == head or await _contains(git, worktree, head, before):
        return LandResult(branch=target, before=before, after=before, commits=0, committed=committed)
    if not await _contains(git, worktree, before, head):
        raise refused(
            "base_moved",
            f"cannot land {worktree.branch}: {target} has commits that the session does not have",
            f"rebase and land again: git -C {worktree.path} rebase {target}",
            target=target,
        )
    count = (await _listed(git, worktree, "rev-list", "--count", f"{before}..{head}")).line
    await _forward(git, worktree, target, before, head)
    return LandResult(branch=target, before=before, after=head, commits=int(count), committed=committed)


async def _landable(git: Git, worktree: SessionWorktree, standing: Standing, commits: bool) -> tuple[str, str]:
    """Return the target branch and its commit. Raises `UsageError(worktree_refused)`."""
    merge = f"merge it by hand: git merge {worktree.branch}"
    if worktree.target is None:
        raise refused(
            "detached",
            f"cannot land {worktree.branch}: no branch was checked out when the session was opened",
            merge,
        )
    before = await _target(git, worktree)
    if before is None:
        raise refused(
            "target_gone", f"cannot land {worktree.branch}: branch {worktree.target} does not exist any more", merge
        )
    if standing.branch != worktree.branch:
        raise refused(
            "other_branch",
            f"cannot land {worktree.branch}: {standing.branch or 'a detached head'} is checked out in the worktree",
            f"finish or undo what goes on there, then: git -C {worktree.path} switch {worktree.branch}",
        )
    if standing.uncommitted and not commits:
        raise refused(
            "uncommitted",
            f"cannot land {worktree.branch}: {_count(standing.uncommitted, 'file')} not committed",
            "commit them with: clisup land SESSION --commit MESSAGE (see clisup diff SESSION)",
            uncommitted=standing.uncommitted,
        )
    return worktree.target, before


async def _check_inner(git: Git, worktree: SessionWorktree, what: str) -> None:
    """Refuse while an inner repository is there: git would keep only the id of its commit."""
    inner = [line[3:-1] for line in await _uncommitted(git, worktree) if line.endswith("/")]
    if inner:
        raise refused(
            "inner_repository",
            f"cannot {what} {worktree.branch}: {worktree.path}/{inner[0]} is a repository of its own",
            "move that directory away, or add it to .gitignore",
            paths=inner[:MAX_LISTED],
        )


async def _commit(git: Git, worktree: SessionWorktree, message: str) -> str | None:
    """Commit all changes, without hooks and without a signature. Return the commit."""
    await _check_inner(git, worktree, "land")
    done = await _stage(git, worktree)
    if done.ok:
        done = await git.run(files_of(worktree), "commit", "-q", "--no-verify", "--cleanup=verbatim", "-m", message)
    if not done.ok:
        raise failed(f"commit the changes in {worktree.path}", done)
    return await commit_of(git, files_of(worktree), "HEAD")


async def _stage(git: Git, worktree: SessionWorktree) -> GitOutput:
    """Add all changes to the index: new files first, because a directory may have taken the place of a file.

    `git add` would run git in each repository that the index names, and that git reads the settings of that repository.
    """
    place = files_of(worktree)
    for which in (("--others", "--exclude-standard"), ("--modified", "--deleted")):
        names = await git.run(place, "ls-files", "-z", *which, limit_bytes=_NAMES_BYTES)
        if names.cut:
            return GitOutput(1, b"", f"fatal: more than {_NAMES_BYTES} bytes of names", cut=False)
        if not names.ok or not names.data:
            continue
        done = await git.run(place, "update-index", "-z", "--add", "--remove", "--replace", "--stdin", stdin=names.data)
        if not done.ok:
            return done
    return names


async def _forward(git: Git, worktree: SessionWorktree, target: str, before: str, head: str) -> None:
    """Fast-forward the target, with the files of the working tree that has the target checked out."""
    holder = await holder_of(git, worktree, target)
    if holder is not None:
        done = await git.run(holder, "merge", "--ff-only", "-q", head)
        where, hint = holder.work_tree, f"commit or stash the changes in {holder.work_tree}, then land again"
    else:
        done = await git.run(store_of(worktree), "update-ref", f"refs/heads/{target}", head, before)
        where, hint = target, f"see what uses {target}: git -C {worktree.path} worktree list"
    if not done.ok:
        raise refused(
            "target_busy",
            f"cannot land {worktree.branch} on {where}: {done.reason}",
            f"{hint}; nothing was changed",
            target=target,
        )


# -- removal -----------------------------------------------------------------------------------------------------------


async def remove_finished(git: Git, worktree: SessionWorktree, *, dry_run: bool = False) -> list[str]:
    """Remove worktree and branch if nothing would be lost. Return the reasons why they stay, none if they are gone.

    A dry run removes nothing.
    """
    worktree = await located(worktree)
    try:
        standing = await standing_of(git, worktree)
    except UsageError as error:
        gone = error.data.get("reason") == "worktree_gone" and not await _exists(worktree.path)
        if gone and not await _branch(git, worktree):
            return []
        lost = error.data.get("reason") == "repository_gone" and not await _exists(worktree.path)
        if lost and not await _exists(worktree.git_dir):
            return []
        return [error.message]
    if standing.reasons or dry_run:
        return standing.reasons
    done = await git.run(store_of(worktree), "worktree", "remove", worktree.path)
    if not done.ok:
        return [done.reason]
    return await _drop_branch(git, worktree, standing.head)


async def _exists(path: str) -> bool:
    return await in_thread(os.path.lexists, path)


async def _branch(git: Git, worktree: SessionWorktree) -> str | None:
    return await commit_of(git, store_of(worktree), f"refs/heads/{worktree.branch}")


async def _drop_branch(git: Git, worktree: SessionWorktree, head: str) -> list[str]:
    """Delete the branch if its commit is still `head`, and the empty directory for worktrees."""
    if await _branch(git, worktree) is not None:
        done = await git.run(store_of(worktree), "update-ref", "-d", f"refs/heads/{worktree.branch}", head)
        if not done.ok:
            return [done.reason]
    with suppress(OSError):  # other worktrees are in it
        await in_thread(os.rmdir, os.path.dirname(worktree.path))
    return []


async def discard(git: Git, worktree: SessionWorktree) -> DiscardResult:
    """Remove worktree and branch with all work in them. A commit keeps that work until git prunes it.

    Raises `UsageError(worktree_refused)`, `WorldError(git_failed)`: the worktree stays.
    """
    worktree = await located(worktree)
    standing = await check_discard(git, worktree)
    if standing is None:
        return await _discard_branch(git, worktree)
    commit = await _snapshot(git, worktree, standing)
    done = await git.run(store_of(worktree), "worktree", "remove", "--force", worktree.path)
    if not done.ok:
        raise failed(f"remove {worktree.path}", done)
    tip = await _branch(git, worktree)
    left = await _drop_branch(git, worktree, tip) if tip else []
    if left:
        raise refused(
            "branch_busy", f"cannot delete branch {worktree.branch}: {left[0]}", "delete it by hand: git branch -D"
        )
    return DiscardResult(
        path=worktree.path,
        branch=worktree.branch,
        commit=commit,
        commits=standing.ahead,
        uncommitted=standing.uncommitted,
    )


async def check_discard(git: Git, worktree: SessionWorktree) -> Standing | None:
    """Return the state of a worktree that may be discarded, or None if its directory is gone.

    Raises `UsageError(worktree_refused)`, `WorldError(git_failed)`.
    """
    worktree = await located(worktree)
    try:
        standing = await standing_of(git, worktree)
    except UsageError as error:
        gone = error.data.get("reason") == "worktree_gone"
        if not gone or await _exists(worktree.path):
            raise
        return None
    if standing.locked is not None:
        raise refused(
            "locked",
            f"cannot discard {worktree.path}: git locks the worktree"
            + (f" ({standing.locked})" if standing.locked else ""),
            f"unlock it first: git worktree unlock {worktree.path}",
        )
    return standing


async def _discard_branch(git: Git, worktree: SessionWorktree) -> DiscardResult:
    """Discard the rest of a worktree whose directory somebody removed: its entry and its branch."""
    await git.run(store_of(worktree), "worktree", "prune")
    tip = await _branch(git, worktree)
    if tip is not None and (left := await _drop_branch(git, worktree, tip)):
        raise refused(
            "branch_busy", f"cannot delete branch {worktree.branch}: {left[0]}", "delete it by hand: git branch -D"
        )
    return DiscardResult(
        path=worktree.path, branch=worktree.branch, commit=tip or worktree.base, commits=0, uncommitted=0
    )


async def _snapshot(git: Git, worktree: SessionWorktree, standing: Standing) -> str:
    """Return a commit with everything that the worktree holds, ignored files apart.

    Parents are the head and, if the head is elsewhere, the session's branch. Raises `WorldError(git_failed)`.
    """
    tip = await _branch(git, worktree)
    parents = [standing.head, *([tip] if tip and not await _contains(git, worktree, tip, standing.head) else [])]
    if not standing.uncommitted and len(parents) == 1:
        return standing.head
    await _check_inner(git, worktree, "discard")
    staged = await _stage(git, worktree)
    tree = await git.run(files_of(worktree), "write-tree") if staged.ok else staged
    if not tree.ok:
        raise _unsaved(worktree, tree)
    message = f"Discarded work of {worktree.branch}"
    options = [part for parent in parents for part in ("-p", parent)]
    made = await git.run(files_of(worktree), *_NOBODY, "commit-tree", tree.line, *options, "-m", message)
    if not made.ok:
        raise _unsaved(worktree, made)
    return made.line


def _unsaved(worktree: SessionWorktree, done: GitOutput) -> UsageError:
    return refused(
        "not_saved",
        f"cannot save the uncommitted work in {worktree.path} before its removal: {done.reason}",
        f"remove it by hand: git worktree remove --force {worktree.path}",
    )
