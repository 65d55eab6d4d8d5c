"""Git branch of a directory, read from the repository's files without git. The files may be a tool's: see `read_small`."""

from __future__ import annotations

import os
import re

from clisup.host.files import read_small

_LIMIT = 4096
"""Most bytes of a `HEAD` or `.git` file."""

_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def branch_of(directory: str) -> str | None:
    """Return the branch that is checked out in `directory`, or 12 digits of a detached commit.

    Return None outside of a repository, and for files that cannot be read. Blocks as the file system does.
    """
    try:
        git = _git_directory(directory)
        head = None if git is None else small_text(os.path.join(git, "HEAD"))
    except (OSError, ValueError):
        return None
    if head is None:
        return None
    reference = head.removeprefix("ref: refs/heads/")
    if reference != head:
        return reference if reference.isprintable() and reference else None
    return head[:12] if _COMMIT.fullmatch(head) else None


def _git_directory(directory: str) -> str | None:
    """Return the `.git` directory of the repository around `directory`. A worktree has a file that names it."""
    path = os.path.abspath(directory)
    while True:
        git = os.path.join(path, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git) and (target := small_text(git).removeprefix("gitdir: ")):
            return os.path.join(path, target)
        if path == os.path.dirname(path):
            return None
        path = os.path.dirname(path)


def small_text(path: str) -> str:
    """Return the stripped text of a small file of a repository. Raises `OSError`."""
    return read_small(path, _LIMIT).decode("utf-8", "surrogateescape").strip()
