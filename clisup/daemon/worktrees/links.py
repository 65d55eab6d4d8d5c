"""Links between a working tree and its directory in the repository (gitrepository-layout(5)), read without git.

A model's tool can write all these files. A link counts only if it holds in both directions: the tree's `.git` names the
directory, and the directory's `gitdir` names the tree. So nobody makes the daemon work in a foreign directory. All
functions block: call them in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from clisup.config.session_spec import SessionWorktree
from clisup.host.files import write_atomic
from clisup.host.git_head import small_text

__all__ = ["fault_of_link", "find_own_git_dir", "foreign_tree", "write_link"]

_MAX_ENTRIES = 10_000


def find_own_git_dir(git_dir: str, path: str) -> str | None:
    """Return the directory in `git_dir` that names the working tree at `path`, or None without exactly one."""
    found = [entry for entry in _own_git_dirs(git_dir) if _tree_of(entry) == os.path.realpath(path)]
    return found[0] if len(found) == 1 else None


def _own_git_dirs(git_dir: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(os.path.join(git_dir, "worktrees")) as entries:
        for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
            if entry.is_dir(follow_symlinks=False):
                yield entry.path


def _tree_of(own_git_dir: str) -> str | None:
    """Return the working tree that a directory of the repository names."""
    try:
        named = os.path.join(own_git_dir, small_text(os.path.join(own_git_dir, "gitdir")))
    except OSError:
        return None
    return os.path.realpath(os.path.dirname(named)) if os.path.basename(named) == ".git" else None


def fault_of_link(git_dir: str, own_git_dir: str, path: str) -> str | None:
    """Return the reason why the working tree at `path` does not belong to `own_git_dir`, or None if it does."""
    if not os.path.isdir(path):
        return f"{path} is gone"
    if os.path.realpath(path) != os.path.normpath(path):
        return f"{path} is reached by a symbolic link"
    named = _named_by(path)
    if named is None or named != os.path.realpath(own_git_dir):
        return f"{path}/.git does not name {own_git_dir}"
    if own_git_dir == git_dir:
        return None
    try:
        common = os.path.realpath(os.path.join(own_git_dir, small_text(os.path.join(own_git_dir, "commondir"))))
    except OSError:
        common = ""
    if common != os.path.realpath(git_dir) or _tree_of(own_git_dir) != path:
        return f"{own_git_dir} does not name {path}"
    return None


def _named_by(path: str) -> str | None:
    """Return the directory that `.git` of a working tree is or names."""
    dotgit = os.path.join(path, ".git")
    try:
        if stat.S_ISDIR(os.stat(dotgit).st_mode):
            return os.path.realpath(dotgit)
        text = small_text(dotgit)
    except OSError:
        return None
    return os.path.realpath(os.path.join(path, text[8:])) if text.startswith("gitdir: ") else None


def foreign_tree(top: str, git_dir: str, own_git_dir: str) -> str | None:
    """Return the reason why the working tree at `top` may not use the repository that its `.git` leads to, or None.

    A tool may have linked a directory to the repository of another one. A repository outside of every working tree
    (`git init --separate-git-dir`) belongs to the tree that names it.
    """
    if own_git_dir == git_dir and os.path.basename(git_dir) == ".git" and os.path.dirname(git_dir) != top:
        return f"{top}/.git leads to the repository of {os.path.dirname(git_dir)}"
    return fault_of_link(git_dir, own_git_dir, top)


def write_link(worktree: SessionWorktree) -> None:
    """Write the `.git` file of a new worktree. Raises `WorldError(storage_failed)`.

    git itself wrote the private common directory of its command there (`clisup.host.git`).
    """
    text = f"gitdir: {worktree.own_git_dir}\n"
    write_atomic(os.path.join(worktree.path, ".git"), text.encode("utf-8", "surrogateescape"))
