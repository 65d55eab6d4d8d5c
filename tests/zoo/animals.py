"""The zoo: twelve kinds of processes that outlive the CLI that started them, and a fake CLI that starts one.

Run as `python -I -S animals.py KIND`, or as the fake CLI: `python -I -S animals.py host KIND stays|stubborn|exits`, in a
directory that holds a fifo named `life`. Promises: the whole tree keeps that working directory (which no environment and
no new session can hide), every process of it holds the fifo open until it dies, the host says `up` once the animal is as
it wants to be, and whatever a killer misses ends by itself after `LIFETIME_S`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # `typing` would double the start-up
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

LIFETIME_S = 60.0
UP, LIFE = 8, 9  # descriptors: where the animal tells that it is up, and the fifo that tells of the last death
CHILDREN, ZOMBIES = 50, 5
REFORK_S = 0.0005  # between a birth and the next: the pid that a killer has just read is gone when it signals
SETTLED = {"double fork": os.WEXITED, "stopped": os.WSTOPPED}  # what the host's child comes to after it has told
BORN = time.monotonic()


def tell() -> None:
    """Say that the animal is as it wants to be."""
    os.write(UP, b"+")
    os.close(UP)


def goes_on() -> bool:
    """False once it has lived long enough, or the zoo's own clean-up, after the verdict, has laid the pill `enough`."""
    return time.monotonic() < BORN + LIFETIME_S and not os.path.exists("enough")


def rest() -> NoReturn:
    """Live on."""
    while goes_on():
        time.sleep(1)
    os._exit(0)


def become(*argv: str, env: dict[str, str] | None = None) -> NoReturn:
    """Execute another life of this file."""
    command = [*argv, sys.executable, "-I", "-S", __file__, "resting"]
    os.execvpe(command[0], command, dict(os.environ) if env is None else env)


def resting() -> None:
    tell()
    rest()


def setsid() -> None:
    os.setsid()
    resting()


def double_fork() -> None:
    if middle := os.fork():
        os.waitpid(middle, 0)
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    resting()


def own_group() -> None:
    os.setpgid(0, 0)
    resting()


def cleared_environment() -> None:
    os.setsid()
    become(env={})


def reforking() -> None:
    """Each generation leaves the session and the group of the one before it, and then the one before it leaves."""
    tell()
    while goes_on():
        os.setsid()
        time.sleep(REFORK_S)
        if os.fork():
            os._exit(0)


def stopped() -> None:
    tell()
    os.kill(os.getpid(), signal.SIGSTOP)
    rest()


def ignoring_term() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    resting()


def nohup() -> None:
    os.setpgid(0, 0)  # as a shell with job control does it
    become("nohup")


def zombie_parent() -> None:
    for _ in range(ZOMBIES):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    resting()


def many_children() -> None:
    for _ in range(CHILDREN):
        if os.fork() == 0:
            os.close(UP)
            rest()
    resting()


def pipe_holder() -> None:
    """The host leaves it the CLI's stdout and stderr."""
    resting()


def guard_pair() -> None:
    """Two that watch each other: whoever sees the other die starts it anew, with a new pid in a new session."""
    told = False
    while goes_on():
        guarded = os.pidfd_open(os.getpid())
        other = os.fork()
        if other:
            os.close(guarded)
            if not told:
                tell()
                told = True
            os.waitpid(other, 0)
            continue
        os.setsid()
        if not told:
            os.close(UP)
            told = True
        select.select([guarded], [], [])  # readable once the parent is dead
        os.close(guarded)


KINDS: dict[str, Callable[[], None]] = {
    "setsid": setsid,
    "double fork": double_fork,
    "own group": own_group,
    "cleared environment": cleared_environment,
    "re-forking": reforking,
    "stopped": stopped,
    "ignoring TERM": ignoring_term,
    "nohup": nohup,
    "zombie parent": zombie_parent,
    "many children": many_children,
    "pipe holder": pipe_holder,
    "guard pair": guard_pair,
}


def host(kind: str, then: str) -> None:
    """The fake CLI. `then`: it exits at once, stays until TERM, or is stubborn and stays until KILL."""
    os.dup2(os.open("life", os.O_WRONLY), LIFE)
    told, up = os.pipe()
    os.dup2(up, UP)
    os.close(up)
    animal = os.fork()
    if animal == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2) if kind != "pipe holder" else (0,):
            os.dup2(null, number)
        os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, kind])
    os.close(UP)
    if then == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.read(told, 1)
    if kind in SETTLED:
        os.waitid(os.P_PID, animal, SETTLED[kind] | os.WNOWAIT)
    os.write(1, b"up\n")
    if then == "exits":
        while not os.path.exists("go"):  # the moment of its exit is measured: it must not come before there is a pidfd
            time.sleep(0.001)
        os._exit(0)
    rest()


if __name__ == "__main__":
    if sys.argv[1] == "host":
        host(sys.argv[2], sys.argv[3])
    else:
        {**KINDS, "resting": resting}[sys.argv[1]]()
