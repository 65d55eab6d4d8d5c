"""Git branch of a directory, read from the repository's files without git."""

from __future__ import annotations

import os
import stat

_LIMIT = 4096
"""Most bytes that are read of a `HEAD` or `.git` file."""


def branch_of(directory: str) -> str | None:
    """Return the branch that is checked out in `directory`, or 12 digits of a detached commit.

    Return None outside of a repository, and for files that cannot be read. Blocks as the file system does.
    """
    try:
        git = _git_directory(directory)
        head = None if git is None else _text(os.path.join(git, "HEAD"))
    except (OSError, ValueError):
        return None
    if head is None:
        return None
    reference = head.removeprefix("ref: refs/heads/")
    if reference != head:
        return reference or None
    return head[:12] if not head.startswith("ref:") and head else None


def _git_directory(directory: str) -> str | None:
    """Return the `.git` directory of the repository around `directory`. A worktree has a file that names it."""
    path = os.path.abspath(directory)
    while True:
        git = os.path.join(path, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git) and (target := _text(git).removeprefix("gitdir: ")):
            return os.path.join(path, target)
        if path == os.path.dirname(path):
            return None
        path = os.path.dirname(path)


def _text(path: str) -> str:
    """Return the stripped text of a small regular file. A pipe or a device raises `OSError` and never blocks."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no file")
        return os.read(fd, _LIMIT).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)
