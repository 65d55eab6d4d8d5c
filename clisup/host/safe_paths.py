"""Rule for the files and directories that the daemon trusts: only this user and root can change where a path leads.

The daemon runs code and takes locks from its state directory, and clients send prompts to its socket. So each directory
and symbolic link on the way must belong to this user or root, and nobody else may write to it. A sticky directory
(/tmp) may be writable, because there only the owner of an entry can replace it. `clisup doctor` uses the same rule.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clisup.errors import ConfigurationError
from clisup.host.files import storage_error

LINKS_LIMIT = 40
"""The kernel follows no more links in a path (path_resolution(7))."""

_ELSEWHERE = "use another directory (--state-dir, --socket)"
_ACL = "system.posix_acl_access"


class UnsafePath(NamedTuple):
    """Reason why a path cannot be trusted, and the fix."""

    what: str
    fix: str


class _Step(NamedTuple):
    """Step on a path: a directory, a symbolic link, or a file at the end. `last` marks the target of the path."""

    place: str
    info: os.stat_result
    last: bool


def make_safe_dir(path: str, use: str, *, check: str = "state directory") -> None:
    """Check the way to `path`, and create its missing parts as 0700. `use` begins the error: "listen in".

    `check` is the name of the same check in `clisup doctor`.

    Raises `ConfigurationError` for a path that others can change, and `WorldError(storage_failed)` if the system
    refuses.
    """
    try:
        problem = _first_problem(path, make=True)
    except OSError as error:
        raise storage_error("make the directory", path, error) from None
    _refuse(use, path, problem, check)


def check_safe_dir(path: str, use: str, *, entries: bool = False, check: str = "state directory") -> None:
    """Check a directory as `make_safe_dir` does, and create nothing. Raises `ConfigurationError`.

    With `entries`, an entry of another user in the directory is refused, too. Such an entry was put there while the
    directory was open.
    """
    _refuse(use, path, problem_of(path, entries=entries), check)


def check_safe_file(path: str, use: str) -> None:
    """Check the way to a file, and the file. A missing file is safe. Raises `ConfigurationError`."""
    try:
        problem = _first_problem(path, make=False, file=True)
    except OSError:
        return  # the caller that opens the file reports the reason
    _refuse(use, path, problem, "configuration")


def is_within(path: str, directory: str) -> bool:
    """Tell whether a path, with its links followed, is `directory` or below it. Blocks on a slow disk.

    `directory` is a resolved path. It is not resolved again: a link that replaces it later holds nothing.
    """
    try:
        return os.path.commonpath([directory, os.path.realpath(path)]) == directory
    except ValueError:  # a zero byte, or a relative path beside an absolute one
        return False


def _refuse(use: str, path: str, problem: UnsafePath | None, check: str) -> None:
    if problem is not None:
        raise ConfigurationError(f"cannot {use} {path}, because {problem.what}", hint=problem.fix, check=check)


def problem_of(path: str, *, entries: bool = False) -> UnsafePath | None:
    """Return the problem that makes the path unsafe, as far as the path exists.

    Return None if the path is safe or cannot be checked.

    With `entries`, the entries of the directory count, too.
    """
    try:
        return _first_problem(path, make=False) or (_entry_problem(path) if entries else None)
    except OSError:
        return None


def _entry_problem(directory: str) -> UnsafePath | None:
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                owner = entry.stat(follow_symlinks=False).st_uid
            except FileNotFoundError:
                continue
            if owner not in (os.geteuid(), 0):
                fix = "others could write to the directory once: look at what is in it, and remove what is not yours"
                return UnsafePath(f"{entry.path} in it belongs to uid {owner}", fix)
    return None


def _first_problem(path: str, *, make: bool, file: bool = False) -> UnsafePath | None:
    trusted = {os.geteuid(), 0}
    for place, info, last in _steps(path, make=make, file=file):
        if place == "/":
            # The owner of / decides over every path. In a user namespace that is the machine's root, as uid 65534.
            above = trusted | {info.st_uid}
        if info.st_uid not in (trusted if last else above):
            return UnsafePath(f"{place} belongs to uid {info.st_uid}", _ELSEWHERE)
        sticky = info.st_mode & stat.S_ISVTX and not last
        if not stat.S_ISLNK(info.st_mode) and not sticky and _others_may_write(place, info):
            mode = stat.S_IMODE(info.st_mode)
            return UnsafePath(f"others may write to {place} (mode {mode:o})", f"chmod go-w {place}, or {_ELSEWHERE}")
    return None


def _steps(path: str, *, make: bool, file: bool) -> Iterator[_Step]:
    """Follow an absolute path as the kernel does. A missing part is created, or ends the walk.

    A step is taken only after the previous step was yielded. By then nobody else can change what the step will look at.
    """
    at, left, links = "/", _names(path), 0
    yield _Step(at, os.lstat(at), not left)
    while left:
        name = left.pop()
        place = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        info = _look(place, make=make)
        if info is None:
            return
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > LINKS_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            yield _Step(place, info, last=False)
            target = os.readlink(place)
            left += _names(target)
            if not target.startswith("/"):
                continue
            place, info = "/", os.lstat("/")
        elif not stat.S_ISDIR(info.st_mode) and (left or not file):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
        at = place
        yield _Step(at, info, not left)


def _names(path: str) -> list[str]:
    """Return the components, the first component at the end."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _look(place: str, *, make: bool) -> os.stat_result | None:
    try:
        return os.lstat(place)
    except FileNotFoundError:
        if not make:
            return None
    try:
        os.mkdir(place, 0o700)  # `os.makedirs` leaves the mode of the parents to the umask
    except FileExistsError:
        pass  # another process made it just now; the next step checks its owner
    return os.lstat(place)


def _others_may_write(place: str, info: os.stat_result) -> bool:
    if info.st_mode & stat.S_IWOTH:
        return True
    # With an ACL the bits of the group are its mask: users named in the ACL may write.
    return bool(info.st_mode & stat.S_IWGRP) and (_has_acl(place) or not _is_private_group(info.st_gid))


def _has_acl(place: str) -> bool:
    try:
        os.getxattr(place, _ACL, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_private_group(gid: int) -> bool:
    """Tell whether this user is the only member of the group.

    With a umask of 002 many distributions let that group write (adduser, USERGROUPS_ENAB).
    """
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    if user.pw_gid != gid or group.gr_name != user.pw_name or set(group.gr_mem) - {user.pw_name}:
        return False
    return not any(other.pw_gid == gid and other.pw_uid != user.pw_uid for other in pwd.getpwall())


def real_paths(paths: Sequence[str], cwd: str) -> tuple[list[str], str]:
    """Return each path, relative ones below `cwd`, with all links followed, and the real path of `cwd`.

    The function may wait for a slow disk. A missing file gets the real path of the directory it would be in. A link may
    change after the read.
    """
    return [os.path.realpath(os.path.join(cwd, path)) for path in paths], os.path.realpath(cwd)
