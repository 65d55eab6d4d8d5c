"""Environment across a re-execution: /proc shows a clean environment, and a memory file holds the real environment.

A child of the same uid can read `/proc/<daemon>/environ`. The daemon therefore executes itself again with an almost
empty environment.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

_FD_VARIABLE = "CLISUP_ENVIRONMENT_FD"
_KEPT_FDS = "CLISUP_KEPT_FDS"
_LIMIT = "CLISUP_FIRST_LIMIT"
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR")
# Pydantic then looks for no plug-in package that could see validated values.
_SET = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}


class CarriedEnvironment:
    """Environment and systemd's credentials by name, which pass between process images in memory alone."""

    def __init__(self, env: Mapping[str, str], credentials: Mapping[str, str] | None = None) -> None:
        self.env = env
        self.credentials = credentials or {}


def can_carry() -> bool:
    """Tell whether this system has memory files. `check_system` reports a system without them."""
    return hasattr(os, "memfd_create")


def carry_environment_over(argv: list[str]) -> None:
    """Execute the daemon again with a clean environment. Return only if the environment is already clean."""
    if _FD_VARIABLE not in os.environ:
        os.environ.pop(_LIMIT, None)  # only the value that this program sets counts
        execute_anew(argv, CarriedEnvironment(os.environ), {})


def carried_file(carried: CarriedEnvironment) -> int:
    """Return a memory file with `carried`, for a process that gets the descriptor and `clean_environment`.

    /proc shows no contents of the file.
    """
    fd = os.memfd_create("clisup-environment", os.MFD_CLOEXEC)
    data = json.dumps({"env": dict(carried.env), "credentials": dict(carried.credentials)}).encode()
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return fd


def clean_environment(env: Mapping[str, str], fd: int) -> dict[str, str]:
    """Return the almost empty environment that goes with a `carried_file`."""
    return {**{name: env[name] for name in _KEPT if name in env}, **_SET, _FD_VARIABLE: str(fd)}


def execute_anew(argv: list[str], carried: CarriedEnvironment, descriptors: Mapping[str, int]) -> NoReturn:
    """Execute `clisup` with these arguments in this process: same pid, same locks, and the named descriptors stay open.

    The daemon's successor will use `carried` as its environment.
    """
    fd = carried_file(carried)
    for number in (fd, *descriptors.values()):
        os.set_inheritable(number, True)
    clean = clean_environment(carried.env, fd)
    clean[_LIMIT] = str(first_limit())
    if descriptors:
        clean[_KEPT_FDS] = json.dumps(dict(descriptors))
    # SIGHUP would end a daemon without a handler. The daemon unblocks the signal once it has one.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    # Without -P, `-m` would import from the directory in which the daemon is started, and anybody may own that
    # repository.
    os.execve(sys.executable, [sys.executable, "-P", "-m", "clisup", *argv], clean)


def first_limit() -> int:
    """Return the hard limit RLIMIT_RTTIME at the daemon's first start, before any re-execution.

    A lower limit marks the processes of the CLIs (`clisup.host.sockets`). The daemon must not use its present limit: a
    tool of the same user may have lowered the present limit to the tool's own limit.
    """
    carried = os.environ.get(_LIMIT)
    return resource.getrlimit(resource.RLIMIT_RTTIME)[1] if carried is None else int(carried)


def taken() -> CarriedEnvironment:
    """Return the data carried to this process. Read the memory file once, then close the file."""
    number = os.environ.pop(_FD_VARIABLE, None)
    if number is None:
        return CarriedEnvironment(dict(os.environ))
    with open(int(number), "rb") as file:
        file.seek(0)
        found = json.loads(file.read().decode("utf-8", "surrogateescape"))
    if isinstance(found.get("env"), dict):
        return CarriedEnvironment(found["env"], found.get("credentials", {}))
    # An older clisup carried only its variables, without credentials. A restart in place can upgrade such a clisup.
    return CarriedEnvironment(found)


def taken_environment() -> Mapping[str, str]:
    """Return only the environment, for a command that needs no daemon."""
    return taken().env


def taken_descriptors() -> dict[str, int]:
    """Return the open descriptors of the previous daemon in this process. No child inherits the descriptors."""
    descriptors: dict[str, int] = json.loads(os.environ.pop(_KEPT_FDS, "{}"))
    for fd in descriptors.values():
        os.set_inheritable(fd, False)
    return descriptors
