"""What a daemon executes itself with: a clean environment in /proc, and the real one in a memory file.

A child of the same uid can read `/proc/<daemon>/environ`, so the daemon starts itself once more with almost nothing in it.
Light, even without `typing`: what the first process imports, the second one imports again.
"""

from __future__ import annotations

import os
import resource
import sys

try:
    from _json import encode_basestring_ascii as _quoted
except ImportError:  # a Python that has it elsewhere
    from json.encoder import encode_basestring_ascii as _quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

__all__ = [
    "Carried",
    "can_carry",
    "carried_file",
    "carry_environment_over",
    "clean_environment",
    "execute_anew",
    "first_limit",
    "taken",
    "taken_descriptors",
    "taken_environment",
]

_FD_VARIABLE = "CLISUP_ENVIRONMENT_FD"
_KEPT_FDS = "CLISUP_KEPT_FDS"
_LIMIT = "CLISUP_FIRST_LIMIT"
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR")
_SET = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}  # no other package is looked for that would see what is validated


class Carried:
    """What travels from process image to process image in memory alone: the environment, and systemd's credentials by name."""

    def __init__(self, env: Mapping[str, str], credentials: Mapping[str, str] | None = None) -> None:
        self.env = env
        self.credentials = credentials or {}


def can_carry() -> bool:
    """Does this system know memory files? Where it does not, `check_system` has the words for it."""
    return hasattr(os, "memfd_create")


def carry_environment_over(argv: list[str]) -> None:
    """Execute the daemon anew with a clean environment; returns only where that has been done already."""
    if _FD_VARIABLE not in os.environ:
        os.environ.pop(_LIMIT, None)  # only this program's own word counts
        execute_anew(argv, Carried(os.environ), {})


def carried_file(carried: Carried) -> int:
    """A memory file with it, for a process that gets the descriptor and `clean_environment`; /proc shows nothing of it."""
    fd = os.memfd_create("clisup-environment", os.MFD_CLOEXEC)
    words = {"env": carried.env, "credentials": carried.credentials}
    data = _object({name: _object({key: _quoted(word) for key, word in of.items()}) for name, of in words.items()})
    view = memoryview(data.encode())
    while view:
        view = view[os.write(fd, view) :]
    return fd


def _object(members: Mapping[str, str]) -> str:
    """A JSON object; the values are JSON already. `json` takes regular expressions along, half as long again as a Python needs to start."""
    return "{" + ", ".join(f"{_quoted(name)}: {value}" for name, value in members.items()) + "}"


def clean_environment(env: Mapping[str, str], fd: int) -> dict[str, str]:
    """The almost empty environment beside a `carried_file`."""
    return {**{name: env[name] for name in _KEPT if name in env}, **_SET, _FD_VARIABLE: str(fd)}


def execute_anew(argv: list[str], carried: Carried, descriptors: Mapping[str, int]) -> NoReturn:
    """Execute `clisup` with these arguments in this very process: same pid, same locks, and the named descriptors stay open.

    `carried` is what the daemon's own successor will take for its environment.
    """
    fd = carried_file(carried)
    for number in (fd, *descriptors.values()):
        os.set_inheritable(number, True)
    clean = clean_environment(carried.env, fd)
    clean[_LIMIT] = str(first_limit())
    if descriptors:
        clean[_KEPT_FDS] = _object({name: str(number) for name, number in descriptors.items()})
    from signal import SIG_BLOCK, SIGHUP, pthread_sigmask

    pthread_sigmask(
        SIG_BLOCK, (SIGHUP,)
    )  # it would end a daemon that has no handler yet; the daemon takes it up when it has
    # -P: else `-m` would import from the directory that the daemon is started in, and that may be anybody's repository.
    os.execve(sys.executable, [sys.executable, "-P", "-m", "clisup", *argv], clean)


def first_limit() -> int:
    """Return the hard limit RLIMIT_RTTIME that the daemon was started with, however often it has executed itself anew.

    A lower limit marks what its CLIs have started (`clisup.host.sockets.peers`). So the daemon must not ask for its present one, which a
    tool of the same user may have lowered to that of its own.
    """
    carried = os.environ.get(_LIMIT)
    return resource.getrlimit(resource.RLIMIT_RTTIME)[1] if carried is None else int(carried)


def taken() -> Carried:
    """What was carried to this process. Reads the memory file once, then closes it."""
    number = os.environ.pop(_FD_VARIABLE, None)
    if number is None:
        return Carried(dict(os.environ))
    import json  # this process needs it anyway; the first one does not

    with open(int(number), "rb") as file:
        file.seek(0)
        found = json.loads(file.read().decode("utf-8", "surrogateescape"))
    if isinstance(found.get("env"), dict):
        return Carried(found["env"], found.get("credentials", {}))
    # A clisup before the credentials, upgraded by a restart in place, carried its variables alone.
    return Carried(found)


def taken_environment() -> Mapping[str, str]:
    """The environment alone, for a command that does without a daemon."""
    return taken().env


def taken_descriptors() -> dict[str, int]:
    """What a daemon before this one, in this very process, left open for it. They are not handed on to any child."""
    import json

    descriptors: dict[str, int] = json.loads(os.environ.pop(_KEPT_FDS, "{}"))
    for fd in descriptors.values():
        os.set_inheritable(fd, False)
    return descriptors
